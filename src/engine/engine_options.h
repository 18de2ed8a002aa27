// The options of an engine. The EnginePlan made from them (plan/engine_plan.h) holds the values chosen for a given
// model and device.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/timeline.h"
#include "tessera/model/adapters/adapter_layout.h"
#include "tessera/model/weights/gguf_options.h"
#include "tessera/piecewise/executable.h"
#include "tessera/piecewise/ladder.h"
#include "tessera/runner/capture/registry.h"
#include "tessera/runner/dispatch/costs.h"
#include "tessera/runner/dispatch/rules.h"
#include "tessera/runner/runner_options.h"

namespace tessera {

class ImageEncoder;
class Lockstep;

enum class LoadFormat : std::uint8_t { kAuto, kSafetensors, kDummy, kGguf };  // kAuto: the format of the model's files

// Options of captured graphs, and of the compilers that make their pieces.
struct GraphOptions {
  GraphMode mode = GraphMode::kFullAndPiecewise;
  bool disable_cuda_graph = false;
  bool disable_piecewise_cuda_graph = false;
  bool enforce_piecewise_cuda_graph = false;
  bool disable_cuda_graph_padding = false;
  PrefillSchedule schedule = PrefillSchedule::kDefault;
  std::int64_t piecewise_max_tokens = 0;       // 0: the chunk size
  std::vector<std::int64_t> piecewise_tokens;  // empty: the sizes of `schedule`
  std::int64_t decode_max_batch = 0;           // 0: 256
  std::vector<std::int64_t> decode_batches;    // empty: decode_ladder()
  std::vector<std::string> split_ops;          // empty: the operators that declare themselves split operators
  std::string compiler = "eager";              // compiler of pieces; see compile/compiler_registry.h
  std::optional<CaptureMode> capture{};        // none: kCore on a GPU; kEager on a CPU, where captures are short
  std::int64_t memory_budget = 0;              // bytes that graphs may take; 0: no limit
  bool measure_costs = true;
  bool debug = false;                         // enable_torch_compile_debug_mode
  bool torch_compile = false;                 // enable_torch_compile: small decodes use the fused compiler
  std::int64_t torch_compile_max_batch = 32;  // torch_compile_max_bs: maximum number of requests of such a decode
  bool vit_cuda_graph = false;  // enable_vit_cuda_graph: graphs of the tower for exact sizes, captured on first use
  std::vector<std::string> disabled_passes;  // names of passes; compile/pass.h
};

// The source of drafts (engine/drafts). Drafts are guesses of a request's next tokens. Speculative decoding checks all
// drafts of a step in one forward.
enum class DraftSource : std::uint8_t {
  kNone,   // no drafts: each step decodes one token
  kAuto,   // AUTO: kLayer if the checkpoint has a next-token layer and no other option excludes drafts
  kText,   // speculative_algorithm SUFFIX: the tokens that followed an earlier occurrence of the text's last tokens
  kLayer,  // MTP: the checkpoint's next-token layer, or kText while the text repeats itself
  kEagle,  // EAGLE3: like kLayer, but with a layer from another folder
  kModel,  // STANDALONE: like kLayer, but with a whole draft model from another folder
};

std::string_view draft_source_name(DraftSource source);  // "none" "auto" "suffix" "mtp" "eagle3" "standalone"

struct DraftOptions {
  DraftSource source = DraftSource::kNone;
  std::string model_path = {};  // speculative_draft_model_path, for kEagle and kModel
  // speculative_num_draft_tokens: the maximum number of drafts that a request gets from its text in a step; >= 1
  std::int64_t most_tokens = 8;
  std::int64_t layer_steps = 3;  // speculative_num_steps: the same limit for drafts by a layer or draft model; >= 1

  // speculative_draft_model_quantization: when the engine starts, it quantises a draft layer, and the head that
  // computes the drafts' logits, to this format: fp8, int8, int4 or nvfp4. Empty: both keep their stored format.
  std::string quantization = {};
  // speculative_draft_vocab_size: a next-token layer or a draft model drafts only ids below this number. 0: all ids may
  // be drafted.
  std::int64_t vocab_size = 0;

  // speculative_forced_tokens, for measurements: drafts are accepted at random, so that a step yields this many tokens
  // on average (ForcedAcceptance). 0: only drafts that equal the model's own choice are accepted.
  double forced_tokens = 0;
  // For tests: the layer makes drafts for every request, even if drafts seldom pay (draft_trials.h).
  bool for_all_requests = false;

  bool any() const { return source != DraftSource::kNone; }
  // Returns whether the drafts come from speculative_draft_model_path.
  bool from_folder() const { return source == DraftSource::kEagle || source == DraftSource::kModel; }
  // Returns whether a next-token layer or a draft model makes the drafts. Returns true for kAuto too, because the
  // engine may choose the layer for kAuto. EnginePlan::drafts says what it chose.
  bool by_layer() const { return source == DraftSource::kAuto || source == DraftSource::kLayer || from_folder(); }
  // Returns the limit of drafts per request and step for the chosen source.
  std::int64_t most() const { return by_layer() ? layer_steps : most_tokens; }
  // Returns the limit of drafts per request and step over all sources, because a request with drafts by a layer may get
  // drafts from its text instead; 0 without drafts.
  std::int64_t most_of_any_source() const { return any() ? std::max(most(), most_tokens) : 0; }
};

// An adapter that is loaded at the start.
struct AdapterPath {
  std::string name;
  std::string path;  // an adapter folder in PEFT's format
};

struct AdapterOptions {
  bool enabled = false;                 // enable_lora
  AdapterLimits limits = {};            // max_loras_per_batch, max_lora_rank, lora_target_modules, lora_modules_to_save
  std::vector<AdapterPath> paths = {};  // lora_paths
};

// The value of chunked_prefill_size with which every prompt is computed in one forward.
inline constexpr std::int64_t kWholePrompts = -1;

struct EngineOptions {
  std::shared_ptr<const Registry> registry = shared_built_ins();
  std::string model_path{};      // a model folder or a config.json
  std::string projector_path{};  // the GGUF file of the vision tower of a model in GGUF files; empty: none
  std::vector<GgufOverride> metadata_overrides{};  // override_kv: values that replace metadata of a GGUF file
  std::string tokenizer_path{};                    // a folder or tokenizer.json; empty: the one in the model's folder
  std::string device = "cpu";
  // The number of ranks that share every layer. Each rank has its own device. The first rank has the device that
  // `device` names ("cuda:N"), and the other ranks have the devices after it.
  int tp_size = 1;
  // The number of groups among which the experts of a mixture-of-experts model are divided. It must divide the number
  // of ranks. If it equals tp_size, each expert is on one rank.
  int ep_size = 1;
  int pp_size = 1;  // pipeline stages of neighbouring layers, each with tp_size ranks
  // Index of this engine among the engines that share the requests. On a node, the engines take devices in the order of
  // their indices.
  int replica = 0;
  int replicas = 1;  // number of engines that share the requests, over all nodes
  // True for data-parallel attention: the replicas are ranks that share the experts of one model, but have requests of
  // their own. Needs `lockstep`.
  bool dp_attention = false;
  std::shared_ptr<Lockstep> lockstep{};
  // The number of nodes. Each node is one process on a machine of its own and has an equal part of the ranks. If there
  // are several nodes, node 0 has the engine and the other nodes follow it (engine_node.h). With dp_attention each node
  // has the engines of its own ranks.
  int nnodes = 1;
  int node_rank = 0;
  std::string dist_init_addr{};  // "HOST:PORT" at which node 0 listens for the other nodes
  double rank_timeout_s = 300;   // how long a rank waits for another rank at most, except while weights load
  std::string dtype = "auto";    // type of weights and activations: auto, float32, bfloat16, float16
  // The format of quantised weights. For a quantised checkpoint, it must be the checkpoint's own format, by the name
  // that SGLang and vLLM use. For an unquantised checkpoint, it must be fp8, int8, int4 or nvfp4, and the engine
  // quantises the weights to it when it starts. Empty: weights keep their stored format.
  std::string quantization{};
  // The format to which the engine quantises the head (lm_head) when it starts: fp8, int8, int4 or nvfp4. Empty: the
  // head keeps its stored format, even if `quantization` is set. A tied head becomes a matrix of its own.
  std::string lm_head_quantization{};
  // Type of the KV cache: a name that `dtype` accepts, or "fp8_e4m3", or "int8" (only on the CPU). "auto" means the
  // type of the activations.
  std::string kv_cache_dtype = "auto";
  LoadFormat load_format = LoadFormat::kAuto;
  std::int64_t context_length = 0;  // 0: the model's context length
  // The maximum number of tokens in a forward. 0: 2048 on the CPU, 8192 on a GPU of 80 GB or more, else 4096.
  // kWholePrompts: the context length.
  std::int64_t chunked_prefill_size = 0;
  // The maximum number of requests that run at once; their drafts do not count. 0: 512 on a GPU of 80 GB or more, else
  // 256. This default is lowered if memory has room for fewer slots of recurrent states.
  std::int64_t max_running_requests = 0;
  std::int64_t max_queued_requests = 0;  // maximum number of requests that wait for room; 0: no limit
  std::int64_t max_total_tokens = 0;     // number of tokens in the KV cache; 0: as many as memory allows
  std::int64_t page_size = 16;
  // True if the engine serves embeddings. An embedding is the normalised hidden state of a prompt's last token, unless
  // modules.json says otherwise. A model whose modules.json has a Pooling always serves embeddings.
  bool is_embedding = false;
  bool disable_radix_cache = false;  // no prompt uses the prefix cache
  bool deterministic = false;        // the bits of a request's results do not depend on other requests
  // True if the engine cuts prefill forwards of many tokens into two halves. This needs several ranks. The ranks
  // exchange the results of one half while they compute the other half.
  bool two_batch_overlap = false;
  // Only forwards of at least this many tokens are cut into two halves. The value must be at least 2. The halves of a
  // shorter forward would not fill a device.
  std::int64_t two_batch_least_tokens = 1024;
  double mem_fraction_static = 0;  // share of memory for weights and KV cache; 0: chosen by the plan
  std::uint64_t random_seed = 0;   // 0: the engine draws a random seed
  // True if a step is scheduled and enqueued while the previous step runs. Unset: true on devices that run
  // asynchronously.
  std::optional<bool> overlap_schedule{};
  DraftOptions drafts{};
  AdapterOptions adapters{};
  GraphOptions graphs{};
  MemoryPlanKind memory_plan = MemoryPlanKind::kPlanned;
  // The folder that keeps measured costs and chosen algorithms from run to run; empty: nothing is kept.
  std::string cache_dir{};
  // The bytes of device memory for image rows, both in use and kept for later prompts. 0: chosen by the plan.
  // The memory grows for an image that needs more.
  std::int64_t image_cache_bytes = 0;
  // Replaces the model's vision tower; for tests.
  std::shared_ptr<ImageEncoder> image_encoder{};
  // Costs of forwards of this model on this device, measured in earlier runs. PrefillSchedule::kAuto uses them to
  // choose the sizes of its graphs.
  std::optional<CostTable> known_costs{};
  bool show_progress = false;
  // The phases of the program's start so far, on a timeline that begins with the process. Unset: the timeline begins
  // with the engine.
  std::optional<Timeline> start{};
};

// Returns the options that apply only to a model in GGUF files: its projector, and values that replace its metadata.
inline GgufOptions gguf_options(const EngineOptions& options) {
  return {.projector = options.projector_path, .overrides = options.metadata_overrides};
}

}  // namespace tessera
