// Plans an engine from options and config.json alone: model, sizes, ladders, rules, memory. `tessera explain` shows it;
// Engine::create carries it out.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/rank_layout.h"
#include "tessera/base/status.h"
#include "tessera/base/timeline.h"
#include "tessera/compile/pass.h"
#include "tessera/engine/cache/cache_pool.h"
#include "tessera/model/config/config.h"
#include "tessera/model/config/embedding_config.h"
#include "tessera/model/model.h"
#include "tessera/model/weights/weights.h"
#include "tessera/piecewise/ladder.h"
#include "tessera/runner/dispatch/rules.h"
#include "tessera/runner/model_runner.h"

namespace tessera {

class ImageEncoder;

enum class LoadFormat : std::uint8_t { kAuto, kSafetensors, kDummy };  // kAuto: safetensors

// Graph options, by the names that the command line has for them.
struct GraphOptions {
  GraphMode mode = GraphMode::kFullAndPiecewise;
  bool disable_cuda_graph = false;
  bool disable_piecewise_cuda_graph = false;
  bool enforce_piecewise_cuda_graph = false;
  bool disable_cuda_graph_padding = false;
  PrefillSchedule schedule = PrefillSchedule::kDefault;
  std::int64_t piecewise_max_tokens = 0;       // 0: the chunk size
  std::vector<std::int64_t> piecewise_tokens;  // empty: the schedule
  std::int64_t decode_max_batch = 0;           // 0: 256
  std::vector<std::int64_t> decode_batches;    // empty: the schedule
  std::vector<std::string> split_ops;          // empty: what operators declare
  std::string compiler = "eager";              // of pieces; compile/compiler_registry.h
  std::optional<CaptureMode> capture{};        // none: kCore on a GPU, kEager on a CPU, where captures are short
  std::int64_t memory_budget = 0;              // bytes that graphs may take; 0: any number
  bool measure_costs = true;
  bool debug = false;                         // enable_torch_compile_debug_mode
  bool torch_compile = false;                 // enable_torch_compile: small decodes by the fused compiler
  std::int64_t torch_compile_max_batch = 32;  // torch_compile_max_bs: up to so many requests
  bool vit_cuda_graph = false;                // enable_vit_cuda_graph: the tower's by exact size, on first use
  std::vector<std::string> disabled_passes;   // by name; compile/pass.h
};

// Of one model.
inline constexpr int kMaxRanks = 64;

// Forwards of a pipeline that are in flight, whatever the number of its stages.
inline constexpr int kMostInFlight = 4;

class Lockstep;

// A chunked_prefill_size by which no prompt is too long for one forward.
inline constexpr std::int64_t kWholePrompts = -1;

struct EngineOptions {
  std::shared_ptr<const Registry> registry = shared_built_ins();
  std::string model_path{};      // a model folder, or a config.json
  std::string tokenizer_path{};  // a folder or tokenizer.json; empty: in the model's folder
  std::string device = "cpu";
  int tp_size = 1;   // ranks that share every layer, each on a device of its own: "cuda:N" and those after it
  int ep_size = 1;   // parts of a mixture's experts, which divide the ranks: experts are whole where it is tp_size
  int pp_size = 1;   // stages of neighbouring layers; every stage has tp_size ranks
  int replica = 0;   // of the engines that share the requests: its devices follow those of the ones before it here
  int replicas = 1;  // how many they are, of all nodes
  // The replicas are ranks that share the experts and have requests of their own (lockstep.h, which is needed to run).
  bool dp_attention = false;
  std::shared_ptr<Lockstep> lockstep{};
  // Processes that share the ranks in equal parts, one for each machine; of several, node 0 has the engine and the
  // others follow it (engine_node.h). With dp_attention each has the engines of its ranks.
  int nnodes = 1;
  int node_rank = 0;
  std::string dist_init_addr{};         // "HOST:PORT" where node 0 listens for the others
  double rank_timeout_s = 300;          // that ranks wait for one another, but for the loading of weights
  std::string dtype = "auto";           // of weights and activations: auto, float32, bfloat16, float16
  std::string kv_cache_dtype = "auto";  // of the KV cache: the same names; auto: as the activations
  LoadFormat load_format = LoadFormat::kAuto;
  std::int64_t context_length = 0;  // 0: the model's
  // Tokens of a forward; 0: 2048 on the CPU, 8192 on a GPU of 80 GB, else 4096; kWholePrompts: as many as the context.
  std::int64_t chunked_prefill_size = 0;
  std::int64_t max_running_requests = 0;  // 0: 512 on a GPU of 80 GB or more, else 256; as many as have states' slots
  std::int64_t max_queued_requests = 0;   // that wait for room; 0: any number
  std::int64_t max_total_tokens = 0;      // of the KV cache; 0: what memory allows
  std::int64_t page_size = 16;
  // The model is served for its hidden states: last token, normalised, where no modules.json says otherwise. One with a
  // Pooling in modules.json is so anyway.
  bool is_embedding = false;
  bool disable_radix_cache = false;  // no prompt is taken from the prefix cache
  bool deterministic = false;        // the same bits whatever else is in the batch
  // Of several ranks: prefill forwards of many tokens run in two halves, each of which is exchanged while the other is
  // computed.
  bool two_batch_overlap = false;
  std::int64_t two_batch_least_tokens = 1024;  // below, a half's kernels no longer fill a device; at least 2
  double mem_fraction_static = 0;              // of the memory, for weights and KV cache; 0: chosen
  std::uint64_t random_seed = 0;               // 0: drawn
  // Schedule and enqueue a step while the one before it runs; none: where the device runs beside the host.
  std::optional<bool> overlap_schedule{};
  GraphOptions graphs{};
  MemoryPlanKind memory_plan = MemoryPlanKind::kPlanned;
  // Where measured costs and chosen algorithms are kept from run to run; empty: nowhere.
  std::string cache_dir{};
  // Rows of images that are kept on the device for prompts to come, beside those in use; bytes, 0: chosen.
  std::int64_t image_cache_bytes = 0;
  // In the place of the model's vision tower; for tests.
  std::shared_ptr<ImageEncoder> image_encoder{};
  // Costs of this model on this device as known from earlier runs; for the ladder of PrefillSchedule::kAuto.
  std::optional<CostTable> known_costs{};
  bool show_progress = false;
  // What the program did before, from the process's start on; none: the start begins with the engine.
  std::optional<Timeline> start{};
};

// Bytes of the device's memory, as the plan shares it out (memory_shares.h).
struct MemoryShares {
  std::int64_t capacity = 0;
  std::int64_t taken = 0;  // before the start, by the driver and others
  std::int64_t weights = 0;
  std::int64_t kv_cache = 0;
  std::vector<CacheGroupOptions> cache_groups{};  // of it, page 0 of each included
  std::int64_t context_tokens = 0;                // that the KV cache has room for, of all requests together
  std::int64_t activations = 0;                   // what forwards need, with graphs or without
  std::int64_t graph_objects = 0;                 // predicted
  double fraction = 0;                            // weights and KV cache of the capacity
  std::int64_t free() const { return capacity - taken - weights - kv_cache - activations - graph_objects; }
};

struct EnginePlan {
  ModelConfig config;
  std::optional<EmbeddingConfig> embedding;  // none: no embedding model
  ModelOptions model;
  ModelGraphs graphs;
  RunnerOptions runner;
  std::vector<PassReport> passes;  // of body, head and sampler, each in the order in which they ran
  std::int64_t parameters = 0;     // of the model, on all ranks together
  std::vector<std::string> notes;  // one line each: rules that applied, sizes dropped, caps
  MemoryShares memory;
  double config_s = 0;  // that reading config.json took
};

inline RankLayout layout_of(const EngineOptions& options) {
  return {.tp_size = options.tp_size, .pp_size = options.pp_size};
}
// Ranks of an engine in each process. Precondition: the options were checked (plan_engine, check_nodes).
inline int ranks_here(const EngineOptions& options) {
  return options.dp_attention ? layout_of(options).ranks() : layout_of(options).ranks() / options.nnodes;
}
// Ranks that share every layer, whether they share their requests too (tp_size) or not (dp_attention).
inline int ranks_of_layers(const EngineOptions& options) {
  return options.dp_attention ? options.replicas : options.tp_size;
}
// Ranks that compute every forward together, of all nodes.
inline int all_ranks(const EngineOptions& options) { return ranks_of_layers(options) * options.pp_size; }
// Engines of this process that share the requests. Precondition: as above.
inline int replicas_here(const EngineOptions& options) {
  return options.dp_attention ? options.replicas / options.nnodes : options.replicas;
}

// What is known of ranks and nodes before the model is built, which says what does not divide among them.
Status check_ranks(const EngineOptions& options);

// The device of a rank of this process, as the options name it. `rank` counts those of all stages and processes.
Result<std::unique_ptr<Device>> open_device(const EngineOptions& options, int rank = 0);

// Fails where the command would: unknown architecture, bad sizes, an unknown dtype, too little memory. Of `device`
// only properties and free memory are read; nothing is taken. The plan is that of one rank.
Result<EnginePlan> plan_engine(const EngineOptions& options, Device& device, int rank = 0);

// Tokens of a forward, and requests that run at once, where no option says otherwise. Of a model that keeps a state for
// each request fewer run where fewer states fit.
std::int64_t default_chunk(const DeviceProperties& device);
std::int64_t default_running(const DeviceProperties& device);
// The source of the model's weights: its folder, or random numbers. Logs what of the folder the model leaves out:
// vision towers, heads that predict further tokens.
Result<WeightSource> weight_source(const EngineOptions& options, const ModelGraphs& graphs);

}  // namespace tessera
