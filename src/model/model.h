// Builds a model's graphs from its config. The runner runs these graphs, shown as inputs → outputs, where T is the
// number of tokens and R the number of rows whose logits are wanted:
//
//   body     input_ids, positions … → hidden [T, hidden]; split at attention into pieces that are captured one by one
//   head     hidden, wanted_rows → logits f32[R, vocab]
//   sampler  logits, sampling parameters → sampled_ids i32[R]
//   choose   choice_logits f32[R, vocab] (edited in place), edits, sampling parameters → sampled_ids i32[R]
//   tower    patches of images → rows of embeddings, if the model has a vision tower
//   draft    draft_hidden, draft_rows, input_ids, positions … → hidden, if a next-token layer or a draft model is
//            requested; the draft's head and sampler are separate graphs
//   logprobs choice_logits f32[R, vocab], logprob_targets → log-probabilities of targets and most probable tokens
//
// With pipeline parallelism these are the graphs of one stage. A stage's body ends with the transfer of hidden states
// to the next stage (ModelOptions::pp_size).
//
// The head of a classifier (ModelConfig::num_labels) returns a score for each label instead of a logit for each token.
// Nothing is sampled from these scores.
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

struct DraftModel;
struct EagleDraft;

// The layer numbers and the cache group of a guest's layers (families/draft_model.h). A guest is a draft model, or an
// EAGLE-3 layer whose target model has no layer with full attention. The guest uses the target model's cache groups.
struct GuestPlace {
  std::int64_t first_layer = 0;             // added to the numbers of the guest's layers; 0 for an EAGLE-3 layer
  std::vector<ir::CacheGroup> groups = {};  // the target's cache groups; one of them also has the guest's layers
  std::size_t group = 0;                    // index of the guest's group in `groups`
  bool takes_embeddings = false;            // whether prompts may give embeddings instead of ids
};

struct ModelOptions {
  ir::DType dtype = ir::DType::kFloat32;  // type of activations
  // The types of the weights and of the KV cache. An absent type is `dtype`. Matmuls support only weights of the
  // activations' type. Attention can read a cache of any type (ops/cache/cache_type.h), except that latent attention
  // supports only floating-point types.
  std::optional<ir::DType> weight_dtype = std::nullopt;
  std::optional<ir::DType> kv_cache_dtype = std::nullopt;
  std::int64_t page_size = 16;         // number of tokens in a KV cache page
  std::int64_t max_requests = 256;     // maximum of requests and drafts in a forward; the length of last_ids
  std::int64_t max_embeddings = 2048;  // rows of the input "embeddings"
  std::int64_t context_length = 0;     // longest sequence, which selects LongRoPE's factors; 0: the config's maximum
  int tp_rank = 0;
  int tp_size = 1;  // number of ranks under tensor parallelism (column- and row-parallel matmuls)
  // Number of groups into which a mixture's experts are divided. Each group belongs to expert_ranks() / ep_size
  // neighbouring ranks. Each of these ranks has a slice of every expert in the group.
  int ep_size = 1;
  // This rank's number under data parallelism in attention. This kind of parallelism requires tp_size 1. Each rank
  // processes its own tokens and has a full copy of all weights except the experts' weights. The forwards of all ranks
  // have the same number of tokens, including padding. Before a layer's experts run, the rows of all ranks are
  // gathered. Afterwards each rank gets the results of its own rows (ops/collective/row_exchange.h).
  int dp_rank = 0;
  int dp_size = 1;
  // Returns how the checkpoint stores a tensor. The stored types decide where the config is ambiguous, and show which
  // KV cache scales exist. If the function is empty, the config alone decides, and the scales are 1.
  StoredTypeOf stored_type = {};
  // Returns the block type of a GGUF file's tensor ("….weight") if the weight keeps the blocks, or nothing if the
  // blocks are converted to numbers. A weight can keep its blocks if operators support the type and each row consists
  // of whole blocks. If the function is empty, no blocks are kept.
  std::function<std::optional<BlockType>(std::string_view tensor)> stored_blocks = {};
  bool round_block_inputs = false;  // whether linears of GGUF blocks may round x (attribute inputs = "block")
  // Whether operators take the integers and the scales of GGUF blocks as separate tensors (block_codes.h). If so, only
  // linears and experts keep their blocks. Embeddings are converted to numbers.
  bool block_codes = false;
  // Whether to build the checkpoint's next-token layer. `max_draft_rows` is the number of rows of the graph input
  // "draft_hidden".
  bool draft_layer = false;
  std::shared_ptr<const EagleDraft> eagle = nullptr;  // a draft layer from a separate folder, instead of draft_layer
  std::shared_ptr<const DraftModel> draft_model = nullptr;  // a draft model, instead of a draft layer
  // Set while the graphs of a guest are built. Gives the numbers and the cache group of the guest's layers.
  std::optional<GuestPlace> guest = std::nullopt;
  std::int64_t max_draft_rows = 2048;
  // The format to which a draft layer and the head of its drafts are quantised while they are read. If it is set, the
  // draft head is a matrix of its own, in addition to the matrix of the model's head. Linears that are stored quantised
  // keep their format.
  std::optional<StartFormat> draft_format = std::nullopt;
  // The format to which the head is quantised while it is read. A tied head becomes a matrix of its own.
  std::optional<StartFormat> head_format = std::nullopt;
  std::int64_t draft_vocab = 0;  // ids that a next-token layer may draft are below this; 0: all ids
  // The maximum number of draft tokens of a request in a forward. A recurrent layer keeps the rows of these tokens
  // until the request's next forward.
  std::int64_t max_drafts = 0;
  // The pipeline stage to build: a range of consecutive layers (model/stages.h).
  int pp_stage = 0;
  int pp_size = 1;

  // Returns the number of ranks among which experts are divided.
  int expert_ranks() const { return tp_size * dp_size; }
  int expert_rank() const { return dp_size > 1 ? dp_rank : tp_rank; }
  ir::DType weight_type() const { return weight_dtype.value_or(dtype); }
  ir::DType kv_cache_type() const { return kv_cache_dtype.value_or(dtype); }
};

// The graph of a vision tower, which turns patches of packed images into rows of embeddings (model/vision/towers.h).
struct VisionGraph {
  ir::Graph graph;
  VisionConfig config;
};

// The graphs that run in a prefill, instead of the model's body and head. From a certain point of the forward on, only
// the wanted rows are needed. `body` ends at this point. `head` computes the rest of the forward for the wanted rows
// (runner/wanted_rows.h).
struct PrefillGraphs {
  ir::Graph body;  // its outputs are inputs of the head and have the same names
  ir::Graph head;  // its outputs are hidden [R, hidden] and logits
};

// The graphs of a next-token layer (layers/draft.h, families/eagle3.h) or of a draft model (families/draft_model.h). A
// row of a next-token layer combines a token with the hidden state of the previous token. A row of a draft model has
// only a token. In both cases the row's logits predict the token after this token. Keys and values are in the cache
// groups of the model's body.
struct DraftGraphs {
  ir::Graph body;     // its output is hidden [T, hidden], which the head and the row of the next draft read
  ir::Graph head;     // reads hidden and wanted_rows; its output is logits f32[R, ids]
  ir::Graph sampler;  // like ModelGraphs::sampler, for the draft's logits
  // Index of the model body's output that becomes draft_hidden. Absent for a draft model, which does not read the
  // model's hidden states. At position p, a draft model's row has the id of token p, whereas a next-token layer's row
  // has the id of token p + 1.
  std::optional<std::size_t> body_output = 0;
  std::vector<TokenId> target_ids = {};  // [ids]: the model's id for each id of the draft's head; empty if equal
};

// Describes how a checkpoint with quantised linears stores one linear's matrix.
struct StoredMatrix {
  std::string module;  // "model.layers.0.self_attn.q_proj", or the tensor of a stack of experts
  std::string format;  // describe(WeightFormat)
  bool unquantised = false;
};

// A matrix that is stored quantised, but is converted to numbers of the model's type while it is read.
struct DequantisedWeight {
  std::string module;  // "model.layers.0.self_attn.kv_b_proj"
  std::string format;  // describe(WeightFormat)
  std::string reason;
};

// A matrix of a model whose linears are quantised at the engine's start, while they are read. The matrix is quantised
// to `format`. If `format` is empty, the matrix is not quantised, and `reason` says why.
struct WeightAtStart {
  std::string module;       // as in StoredMatrix
  std::string format = {};  // describe(WeightFormat), or empty
  std::string reason = {};
};

// The graphs of forwards with low-rank adapters (runner/adapters/adapted_graphs.h). Values that also exist in the
// model's own graphs have the same names.
struct AdaptedGraphs {
  AdapterLayout layout;
  ir::Graph body;
  ir::Graph head;
  std::optional<PrefillGraphs> prefill = std::nullopt;  // present if ModelGraphs::prefill is present
};

struct ModelGraphs {
  ir::Graph body;
  ir::Graph head;
  ir::Graph sampler;
  ir::Graph choose;
  ir::Graph logprobs;
  std::vector<WeightSpec> weights;        // weights of all graphs that this stage runs
  std::vector<StoredMatrix> stored = {};  // matrices of body, head and draft; empty if none is quantised
  std::vector<DequantisedWeight> dequantised = {};
  std::vector<WeightAtStart> at_start = {};   // matrices of body, head and draft
  std::vector<LayerInfo> layers = {};         // [layers] or empty; becomes ForwardContext::layers
  std::vector<AdaptableLinear> linears = {};  // linears of body and head that adapters may change
  std::optional<VisionGraph> vision = std::nullopt;
  std::optional<DraftGraphs> draft = std::nullopt;  // present if draft_layer, eagle or draft_model is set
  // The layers of this pipeline stage. The head and the graphs that follow it belong to the last stage. Other stages
  // have these graphs too, but not their weights.
  LayerRange own_layers = {};
  bool has_head = true;
  int dp_size = 1;                                 // ModelOptions::dp_size
  std::vector<WeightSpec> weights_elsewhere = {};  // weights that only other stages use
  // The graphs that run in prefills; absent if prefills run `body` and `head`.
  std::optional<PrefillGraphs> prefill = std::nullopt;

  std::optional<AdaptedGraphs> adapted = std::nullopt;  // absent if no adapters are served

  const ir::Graph& prefill_body() const { return prefill ? prefill->body : body; }
  const ir::Graph& prefill_head() const { return prefill ? prefill->head : head; }
};

// Returns the graphs that use the KV cache: the body and, if there is one, the body of the draft layer or draft model.
std::vector<const ir::Graph*> cached_graphs(const ModelGraphs& graphs);

// Builds the graphs. Returns kUnimplemented or kInvalidArgument if that is impossible, for example because ranks cannot
// share heads or experts equally, there are fewer layers than stages, or no kernel supports the combination of types.
// Needs no weights and no device.
Result<ModelGraphs> build_model(const ModelConfig& config, const ModelOptions& options, const ir::OpTable& ops,
                                const FamilyRegistry& families);

// Returns the weights of all stages.
std::vector<WeightSpec> all_weights(const ModelGraphs& graphs);

// Names of the static inputs. The runner fills these inputs before every forward. X is ModelOptions::dtype.
namespace input_names {
inline constexpr std::string_view kInputIds = "input_ids";    // i32[T]
inline constexpr std::string_view kInputRows = "input_rows";  // i32[T]: row of last_ids, or -1
// i32[max_requests]: the ids that the last step sampled
inline constexpr std::string_view kLastIds = "last_ids";
inline constexpr std::string_view kEmbeddingRows = "embedding_rows";  // i32[T]: row of embeddings, or -1
// X[max_embeddings, row values]: the rows that prompts give in place of embeddings
inline constexpr std::string_view kEmbeddings = "embeddings";
inline constexpr std::string_view kPositions = "positions";  // i32[T]
// X[max_draft_rows, hidden size]: hidden states for a next-token layer, from the last forward or the last draft
inline constexpr std::string_view kDraftHidden = "draft_hidden";
inline constexpr std::string_view kTargetIds =
    "target_ids";  // i32[ids, 1]: the model's id for each id of a draft's head
inline constexpr std::string_view kDraftRows = "draft_rows";  // i32[T]: row of draft_hidden; -1 for padding
// Used instead of kPositions if the model has positions in three dimensions. A text token has the same position in all
// three.
inline constexpr std::string_view kRopePositions = "rope_positions";  // i32[3, T]: time, height, width
// i32[5, T]: assigns adapters to tokens (ops/adapters/adapter_rows.h)
inline constexpr std::string_view kAdapterRows = "adapter_rows";
// i32[5, R]: like adapter_rows, for the rows of a head
inline constexpr std::string_view kAdapterHeadRows = "adapter_head_rows";
inline constexpr std::string_view kSlots = "slots.";                    // i32[T], "slots.<cache group>"
inline constexpr std::string_view kWantedRows = "wanted_rows";          // i32[R]; -1 for padding
inline constexpr std::string_view kRowMarks = "row_marks";              // i32[R]: 1, or 0 for padding
inline constexpr std::string_view kTemperature = "temperature";         // f32[R]
inline constexpr std::string_view kTopK = "top_k";                      // i32[R]
inline constexpr std::string_view kTopP = "top_p";                      // f32[R]
inline constexpr std::string_view kMinP = "min_p";                      // f32[R]
inline constexpr std::string_view kSeed = "seed";                       // i64[R]
inline constexpr std::string_view kChoice = "choice";                   // i32[R]
inline constexpr std::string_view kSamplePosition = "sample_position";  // i32[R]
inline constexpr std::string_view kChoiceLogits = "choice_logits";      // f32[R, vocab]
// i32[R]: index of the row's first edit in edit_ids, edit_penalties and edit_offsets
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
