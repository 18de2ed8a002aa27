// Builds graphs from a config. Every architecture gives the runner these graphs:
//
//   body     input_ids, positions … → hidden [T, hidden]     split at attention, captured by pieces
//   head     hidden, wanted_rows → logits f32[R, vocab]
//   sampler  logits, sampling parameters → sampled_ids i32[R]
//   choose   choice_logits f32[R, vocab], edited in place; edits, sampling parameters → sampled_ids i32[R]
//   tower    patches of images → rows of embeddings, if the model has a tower
//   draft    draft_hidden, draft_rows, input_ids, positions … → hidden, if the next-token layer is wanted; it has a
//            head of its own
//   logprobs choice_logits f32[R, vocab], logprob_targets → log-probabilities of these and of the most probable tokens
//
// In a pipeline these are the graphs of one stage, whose body ends by sending hidden states to the next stage
// (ModelOptions::pp_size).
//
// A classifier (ModelConfig::num_labels) has labels instead of the vocabulary from the head on; nothing is sampled from
// them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/ir/graph.h"
#include "tessera/ir/op_decl.h"
#include "tessera/model/adapters/adapter_layout.h"
#include "tessera/model/config/config.h"
#include "tessera/model/formats/weight_formats.h"
#include "tessera/model/stages.h"
#include "tessera/model/weights/weights.h"
#include "tessera/ops/contract/layer_info.h"

namespace tessera {

struct EagleDraft;

struct ModelOptions {
  ir::DType dtype = ir::DType::kFloat32;  // type of activations
  // Type of weights, and type of the cache; absent: `dtype`. Matmuls take only weights of the activations' type;
  // attention reads a cache of any type (ops/cache/cache_type.h), latent attention one of a floating-point type.
  std::optional<ir::DType> weight_dtype = std::nullopt;
  std::optional<ir::DType> kv_cache_dtype = std::nullopt;
  std::int64_t page_size = 16;         // tokens of a KV cache page
  std::int64_t max_requests = 256;     // requests of a forward at most: length of last_ids
  std::int64_t max_embeddings = 2048;  // rows of the input "embeddings"
  std::int64_t context_length = 0;     // longest sequence, for LongRoPE's choice of factors; 0: the model's own
  int tp_rank = 0;
  int tp_size = 1;  // number of ranks that share every layer (column- and row-parallel matmuls)
  // Number of parts into which the experts of a mixture are divided. Each part is on expert_ranks() / ep_size
  // neighbouring ranks, which slice its experts.
  int ep_size = 1;
  // This rank's number among ranks that each have tokens of their own (DP attention, with tp_size 1). Each rank has all
  // weights whole, except the experts' weights. The body computes a rank's own tokens. All ranks' forwards have the
  // same number of tokens, including padding. Before a layer's experts the rows of all ranks are gathered, and after
  // them each rank takes back its own (ops/collective/row_exchange.h).
  int dp_rank = 0;
  int dp_size = 1;
  // Tells how the checkpoint stores its tensors, to settle what the config leaves open, and to find scales of the
  // cache. Empty: the config decides, and scales are 1.
  StoredTypeOf stored_type = {};
  // Tells the type of the blocks of a GGUF file's tensor ("….weight") that are kept as they are: operators take the
  // type, and each row has blocks of its own. Empty: no blocks are kept.
  std::function<std::optional<BlockType>(std::string_view tensor)> stored_blocks = {};
  bool round_block_inputs = false;  // whether inputs of blocks may be rounded (quantised_linear's inputs = "block")
  // Whether operators take integers and scales of blocks apart (block_codes.h). Then only linears keep them.
  bool block_codes = false;
  // Whether to build the checkpoint's next-token layer, and the rows of its input "draft_hidden".
  bool draft_layer = false;
  std::shared_ptr<const EagleDraft> eagle = nullptr;  // a draft layer of another folder; excludes draft_layer
  std::int64_t max_draft_rows = 2048;
  // The pipeline stage to build: a range of neighbouring layers (model/stages.h).
  int pp_stage = 0;
  int pp_size = 1;

  // Returns the number of ranks among which experts are divided.
  int expert_ranks() const { return tp_size * dp_size; }
  int expert_rank() const { return dp_size > 1 ? dp_rank : tp_rank; }
  ir::DType weight_type() const { return weight_dtype.value_or(dtype); }
  ir::DType kv_cache_type() const { return kv_cache_dtype.value_or(dtype); }
};

// A vision tower: patches of packed images → rows of embeddings (model/vision/towers.h).
struct VisionGraph {
  ir::Graph graph;
  VisionConfig config;
};

// Graphs that prompts run instead of body and head: a body that ends where only wanted rows are needed, and a head that
// computes the rest for these rows (runner/wanted_rows.h).
struct PrefillGraphs {
  ir::Graph body;  // its outputs are inputs of the head, by name
  ir::Graph head;  // → hidden [R, hidden], logits
};

// Graphs of a next-token layer. A row is a token and the hidden state of the row before it; its logits are for the next
// token (layers/draft.h, families/eagle3.h). The layer's keys and values lie in the body's cache groups.
struct DraftGraphs {
  ir::Graph body;                        // → hidden [T, hidden], which the head reads, and a draft's next row
  ir::Graph head;                        // hidden, wanted_rows → logits f32[R, ids]
  ir::Graph sampler;                     // as ModelGraphs::sampler, for these logits
  std::size_t body_output = 0;           // the output of the model's body that draft_hidden takes
  std::vector<TokenId> target_ids = {};  // [ids]: the model's id of each of the head's; empty: the same ids
};

// A linear of a checkpoint that has quantised ones, and how its matrix is stored.
struct StoredMatrix {
  std::string module;  // "model.layers.0.self_attn.q_proj", or the tensor of a stack of experts
  std::string format;  // describe(WeightFormat)
  bool plain = false;  // it is stored as numbers
};

// A quantised matrix of the checkpoint that is kept as numbers of the model's type.
struct DequantisedWeight {
  std::string module;  // "model.layers.0.self_attn.kv_b_proj"
  std::string format;  // describe(WeightFormat)
  std::string reason;
};

// A matrix of a model that is quantised at the start. It is rounded to `format`; if that is empty, `reason` says why
// not.
struct WeightAtStart {
  std::string module;       // or the tensor of a stack of experts
  std::string format = {};  // describe(WeightFormat); empty: none
  std::string reason = {};
};

// Graphs of forwards with low-rank adapters (runner/adapters/adapted_graphs.h). They have the model's own values under
// the same names.
struct AdaptedGraphs {
  AdapterLayout layout;
  ir::Graph body;
  ir::Graph head;
  std::optional<PrefillGraphs> prefill = std::nullopt;  // set if ModelGraphs::prefill is
};

struct ModelGraphs {
  ir::Graph body;
  ir::Graph head;
  ir::Graph sampler;
  ir::Graph choose;
  ir::Graph logprobs;
  std::vector<WeightSpec> weights;        // weights of body, head and tower
  std::vector<StoredMatrix> stored = {};  // matrices of body and head, each once; empty: none is quantised
  std::vector<DequantisedWeight> dequantised = {};
  std::vector<WeightAtStart> at_start = {};   // matrices of body and head, each once
  std::vector<LayerInfo> layers = {};         // [layers], or empty: ForwardContext::layers
  std::vector<AdaptableLinear> linears = {};  // linears of body and head that adapters may change
  std::optional<VisionGraph> vision = std::nullopt;
  std::optional<DraftGraphs> draft = std::nullopt;  // ModelOptions::draft_layer
  // Layers of this pipeline stage. The head and the graphs after it belong to the last stage; other stages only declare
  // them, without weights.
  LayerRange own_layers = {};
  bool has_head = true;
  int dp_size = 1;                                 // ModelOptions::dp_size
  std::vector<WeightSpec> weights_elsewhere = {};  // weights that only other stages have
  // Absent if prompts run body and head themselves.
  std::optional<PrefillGraphs> prefill = std::nullopt;

  std::optional<AdaptedGraphs> adapted = std::nullopt;  // absent: no adapters are served

  const ir::Graph& prefill_body() const { return prefill ? prefill->body : body; }
  const ir::Graph& prefill_head() const { return prefill ? prefill->head : head; }
};

// Returns the graphs whose states are the model's cache: the body, and the next-token layer's if there is one.
std::vector<const ir::Graph*> cached_graphs(const ModelGraphs& graphs);

// Builds the graphs. kUnimplemented or kInvalidArgument if the config cannot be built (heads or experts that do not
// divide among the ranks, fewer layers than stages, types that no kernel takes together). Needs no weights and no
// device.
Result<ModelGraphs> build_model(const ModelConfig& config, const ModelOptions& options, const ir::OpTable& ops,
                                const FamilyRegistry& families);

// Returns the weights of all stages.
std::vector<WeightSpec> all_weights(const ModelGraphs& graphs);

// Names of the static inputs that the runner stages before every forward.
namespace input_names {
inline constexpr std::string_view kInputIds = "input_ids";    // i32[T]
inline constexpr std::string_view kInputRows = "input_rows";  // i32[T]: row of last_ids, or -1
// i32[max_requests]: tokens that the last step sampled
inline constexpr std::string_view kLastIds = "last_ids";
inline constexpr std::string_view kEmbeddingRows = "embedding_rows";  // i32[T]: row of embeddings, or -1
// X[max_embeddings, row values]: rows given by prompts
inline constexpr std::string_view kEmbeddings = "embeddings";
inline constexpr std::string_view kPositions = "positions";  // i32[T]
// X[max_draft_rows, hidden size]: what the last forward, or the last draft, left for a next-token layer
inline constexpr std::string_view kDraftHidden = "draft_hidden";
inline constexpr std::string_view kDraftRows = "draft_rows";  // i32[T]: row of draft_hidden; -1 for padding
// Replaces kPositions if the model has positions in three dimensions; they are equal for tokens of text.
inline constexpr std::string_view kRopePositions = "rope_positions";  // i32[3, T]: time, height, width
// i32[5, T]: which tokens have which adapter (ops/adapters/adapter_rows.h)
inline constexpr std::string_view kAdapterRows = "adapter_rows";
inline constexpr std::string_view kAdapterHeadRows = "adapter_head_rows";  // i32[5, R]: the same for rows of a head
inline constexpr std::string_view kSlots = "slots.";                       // i32[T], "slots.<cache group>"
inline constexpr std::string_view kWantedRows = "wanted_rows";             // i32[R]; -1 for padding
inline constexpr std::string_view kRowMarks = "row_marks";                 // i32[R]: 1, or 0 for padding
inline constexpr std::string_view kTemperature = "temperature";            // f32[R]
inline constexpr std::string_view kTopK = "top_k";                         // i32[R]
inline constexpr std::string_view kTopP = "top_p";                         // f32[R]
inline constexpr std::string_view kMinP = "min_p";                         // f32[R]
inline constexpr std::string_view kSeed = "seed";                          // i64[R]
inline constexpr std::string_view kChoice = "choice";                      // i32[R]
inline constexpr std::string_view kSamplePosition = "sample_position";     // i32[R]
inline constexpr std::string_view kChoiceLogits = "choice_logits";         // f32[R, vocab]
// i32[R]: the row's first edit in the next three
inline constexpr std::string_view kEditFirst = "edit_first";
inline constexpr std::string_view kEditCount = "edit_count";            // i32[R]
inline constexpr std::string_view kEditIds = "edit_ids";                // i32[max_choice_edits]
inline constexpr std::string_view kEditPenalties = "edit_penalties";    // f32[max_choice_edits]
inline constexpr std::string_view kEditOffsets = "edit_offsets";        // f32[max_choice_edits]
inline constexpr std::string_view kEditMask = "edit_mask";              // i32[R]: row of edit_masks, or -1
inline constexpr std::string_view kEditMasks = "edit_masks";            // i32[kMaxChoiceRows, ⌈vocab / 32⌉]: bits
inline constexpr std::string_view kLogprobTargets = "logprob_targets";  // i32[R]
}  // namespace input_names

}  // namespace tessera
