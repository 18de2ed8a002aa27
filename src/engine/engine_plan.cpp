#include "tessera/engine/engine_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "tessera/base/log.h"
#include "tessera/compile/halves.h"
#include "tessera/engine/cache/memory_shares.h"
#include "tessera/engine/plan_ladders.h"
#include "tessera/engine/ranks/engine_node.h"
#include "tessera/model/weights/checkpoint.h"
#include "tessera/model/weights/model_path.h"
#include "tessera/model/weights/unread_tensors.h"
#include "tessera/piecewise/split_ops.h"
#include "tessera/runner/capture/make_executable.h"
#include "tessera/runner/memory/layer_caches.h"
#include "tessera/runner/wanted_rows.h"

namespace tessera {
namespace {

// Returns nothing for "auto".
Result<std::optional<ir::DType>> named_dtype(std::string_view option, const std::string& name) {
  if (name == "auto") return std::optional<ir::DType>();
  if (name == "float32") return std::optional(ir::DType::kFloat32);
  if (name == "bfloat16") return std::optional(ir::DType::kBFloat16);
  if (name == "float16" || name == "half") return std::optional(ir::DType::kFloat16);
  return invalid_argument(fmt::format("{}: \"{}\" is none of auto, float32, bfloat16, float16", option, name));
}

Result<ir::DType> choose_dtype(const std::string& name, const ModelConfig& config, const DeviceProperties& device) {
  const std::optional<ir::DType> named = TRY(named_dtype("dtype", name));
  if (named) return *named;
  // On a CPU without matrix instructions for it, a narrow type only adds conversions.
  if (device.on_host && !device.has_native_bf16) return ir::DType::kFloat32;
  if (config.dtype == StoredDtype::kBF16) return device.has_native_bf16 ? ir::DType::kBFloat16 : ir::DType::kFloat32;
  if (config.dtype == StoredDtype::kF16 && !device.on_host) return ir::DType::kFloat16;
  return ir::DType::kFloat32;
}

Status at_least_one(std::int64_t value, std::string_view option) {
  if (value >= 0) return ok_status();
  return invalid_argument(fmt::format("{}: {} is not accepted; 1 or more is", option, value));
}

// LongRoPE has two sets of rotation factors, and answers to short prompts depend on the set.
void note_longrope(EnginePlan& plan) {
  const RopeConfig& rope = plan.config.rope;
  const std::int64_t short_context = rope.original_max_position_embeddings;
  if (rope.type != RopeType::kLongRope || plan.runner.context_length <= short_context) return;
  plan.notes.push_back(fmt::format(
      "context length {}: LongRoPE rotates all prompts by its long factors; at most {} takes the short ones",
      plan.runner.context_length, short_context));
}

// Runs the passes on the graphs that are captured.
Status run_graph_passes(const std::vector<std::string>& disabled, EnginePlan& plan) {
  for (ir::Graph* graph : {&plan.graphs.body, &plan.graphs.head, &plan.graphs.sampler}) {
    const Registry& registry = *plan.runner.registry;
    PassRun run = TRY(run_passes(std::move(*graph), registry.ops, {.disabled = disabled}, registry.passes));
    *graph = std::move(run.graph);
    plan.passes.insert(plan.passes.end(), run.reports.begin(), run.reports.end());
  }
  return ok_status();
}

// Gives prompts a graph that computes the last layer's end for wanted rows only. Embedding models need all hidden
// states, and ranks that exchange rows want other rows.
Status plan_wanted_rows(const Device& device, EnginePlan& plan) {
  if (plan.embedding || !plan.graphs.has_head || plan.graphs.dp_size > 1) return ok_status();
  plan.graphs.prefill = TRY(end_with_wanted_rows(plan.graphs.body, plan.graphs.head, plan.runner.registry->ops,
                                                 *TRY(kernels_of(plan.runner, device))));
  return ok_status();
}

// A classifier keeps its own head, whatever other files are in its folder. An embedding model's head is never computed,
// and most such checkpoints have none, so the embeddings replace it and no head is read.
Status plan_embedding(const EngineOptions& options, EnginePlan& plan) {
  if (plan.config.num_labels > 0) return ok_status();
  plan.embedding = TRY(EmbeddingConfig::read(model_folder(options.model_path), plan.config.hidden_size));
  if (!plan.embedding && options.is_embedding) plan.embedding = EmbeddingConfig();
  if (plan.embedding) plan.config.tie_word_embeddings = true;
  return ok_status();
}

// Returns the number of requests for which state slots exist; nothing where the model keeps no states.
std::optional<std::int64_t> requests_with_states(const EnginePlan& plan) {
  std::optional<std::int64_t> fewest;
  for (const CacheGroupOptions& group : plan.memory.cache_groups)
    if (group.is_state()) fewest = std::min(fewest.value_or(INT64_MAX), group.num_pages - 1);
  return fewest;
}

// Returns the number of image rows with memory: as many as the option's bytes hold. Without the option it is the rows
// of the largest image that processors make, or of the context where that is less.
Result<std::int64_t> rows_of_images(const EngineOptions& options, const EnginePlan& plan, ir::DType dtype) {
  constexpr std::int64_t kLargestImage = 16384;
  TRY(at_least_one(options.image_cache_bytes, "image_cache_bytes"));
  if (!plan.config.images) return 0;
  if (options.image_cache_bytes == 0) return std::min(plan.runner.context_length, kLargestImage);
  const auto value_bytes = static_cast<std::int64_t>(ir::dtype_size(dtype));
  return std::max<std::int64_t>(options.image_cache_bytes / (plan.config.embedding_row_values() * value_bytes), 1);
}

bool is_large_gpu(const DeviceProperties& device) {
  constexpr std::int64_t kBytes = 80'000'000'000;
  return !device.on_host && device.memory_bytes >= kBytes;
}

// Number of graphs kept where the tower is captured by exact sizes.
constexpr std::int64_t kExactVisionGraphs = 32;

// An image's tokens and patches must fit the context. The tower has graphs where the language model has some.
void plan_vision(const EngineOptions& options, EnginePlan& plan) {
  if (!plan.graphs.vision) return;
  RunnerOptions& runner = plan.runner;
  const std::int64_t merged = plan.graphs.vision->config.merged_patches();
  const std::int64_t tokens = std::min(runner.vision.max_patches / merged, runner.context_length);
  runner.vision.max_patches = tokens * merged;
  runner.vision.graphs = runner.graphs.prefill || runner.graphs.decode;
  if (!runner.vision.graphs) return;
  if (options.graphs.vit_cuda_graph) {
    runner.vision.exact_graphs = kExactVisionGraphs;
  } else {
    runner.vision.sizes = default_vision_sizes(merged, runner.vision.max_patches);
  }
}

}  // namespace

std::int64_t default_chunk(const DeviceProperties& device) {
  if (device.on_host) return 2048;
  return is_large_gpu(device) ? 8192 : 4096;
}

std::int64_t default_running(const DeviceProperties& device) { return is_large_gpu(device) ? 512 : 256; }

Result<WeightSource> weight_source(const EngineOptions& options, const ModelGraphs& graphs) {
  if (options.load_format == LoadFormat::kDummy) return dummy_source(options.random_seed);
  Checkpoint checkpoint = TRY(Checkpoint::open(model_folder(options.model_path)));
  const std::string unread = unread_tensors(checkpoint, all_weights(graphs));
  if (!unread.empty()) log_info("engine", "tensors of the checkpoint that text generation does not read: {}", unread);
  return checkpoint_source(std::move(checkpoint));
}

namespace {

// Ranks that capture and dispatch on their own must do so alike.
Status check_lockstep(const EngineOptions& options) {
  if (options.graphs.capture.value_or(CaptureMode::kEager) != CaptureMode::kEager)
    return unimplemented("enable_dp_attention captures every size at the start; no other mode of capture is accepted");
  return ok_status();
}

}  // namespace

Status check_ranks(const EngineOptions& options) {
  if (options.tp_size < 1 || options.tp_size > kMaxRanks)
    return invalid_argument(fmt::format("tp_size: {} is not accepted; 1 to {} is", options.tp_size, kMaxRanks));
  if (options.pp_size < 1 || options.pp_size * options.tp_size > kMaxRanks)
    return invalid_argument(fmt::format("pp_size: {} stages of {} ranks are not accepted; 1 to {} ranks in all are",
                                        options.pp_size, options.tp_size, kMaxRanks));
  TRY(check_nodes(options));
  if (options.dp_attention) TRY(check_lockstep(options));
  if (layout_of(options).ranks() > 1 && options.image_encoder != nullptr)
    return internal_error("an image encoder of the caller's serves one rank alone");
  return ok_status();
}

namespace {

Result<std::int64_t> tokens_of_forward(std::int64_t chunk, std::int64_t context, const DeviceProperties& properties) {
  if (chunk == 0) return default_chunk(properties);
  if (chunk != kWholePrompts) return chunk;
  if (context <= kMaxLadderSize) return context;
  return invalid_argument(
      fmt::format("chunked_prefill_size: {} with a context of {} is not accepted; a context_length "
                  "of at most {} is",
                  chunk, context, kMaxLadderSize));
}

Result<EnginePlan> plan_once(const EngineOptions& options, Device& device, int rank) {
  const RankLayout layout = layout_of(options);
  const DeviceProperties& properties = device.properties();
  TRY(check_ranks(options));
  TRY(at_least_one(options.context_length, "context_length"));
  if (options.chunked_prefill_size != kWholePrompts)
    TRY(at_least_one(options.chunked_prefill_size, "chunked_prefill_size"));
  if (options.chunked_prefill_size > kMaxLadderSize) {
    return invalid_argument(fmt::format("chunked_prefill_size: {} is not accepted; at most {} is",
                                        options.chunked_prefill_size, kMaxLadderSize));
  }
  TRY(at_least_one(options.max_running_requests, "max_running_requests"));
  TRY(at_least_one(options.max_queued_requests, "max_queued_requests"));
  TRY(at_least_one(options.max_total_tokens, "max_total_tokens"));
  if (options.page_size < 1 || options.page_size > 1024)
    return invalid_argument(fmt::format("page_size: {} is not accepted; 1 to 1024 is", options.page_size));

  EnginePlan plan;
  const Timeline::Clock::time_point reading = Timeline::Clock::now();
  plan.config = TRY(ModelConfig::read(options.model_path, options.registry->families));
  TRY(plan_embedding(options, plan));
  plan.config_s = std::chrono::duration<double>(Timeline::Clock::now() - reading).count();
  RunnerOptions& runner = plan.runner;
  runner.registry = options.registry;
  runner.page_size = options.page_size;
  runner.max_requests = options.max_running_requests > 0 ? options.max_running_requests : default_running(properties);
  runner.context_length = options.context_length > 0 ? options.context_length : plan.config.max_position_embeddings;
  if (runner.context_length > plan.config.max_position_embeddings) {
    return invalid_argument(fmt::format("context_length: {} is more than the model's {} positions",
                                        runner.context_length, plan.config.max_position_embeddings));
  }
  runner.max_tokens = TRY(tokens_of_forward(options.chunked_prefill_size, runner.context_length, properties));
  runner.memory_plan = options.memory_plan;
  runner.decode_padding = !options.graphs.disable_cuda_graph_padding;
  runner.show_progress = options.show_progress;
  runner.max_in_flight = std::max(2, std::min(options.pp_size, kMostInFlight));
  runner.deterministic = options.deterministic;
  if (options.two_batch_least_tokens < 2)
    return invalid_argument(
        fmt::format("two_batch_least_tokens: {} is not accepted; at least 2 is", options.two_batch_least_tokens));
  if (options.two_batch_overlap && (layout.tp_size > 1 || options.dp_attention))
    runner.halves_from = options.two_batch_least_tokens;
  runner.capture = options.graphs.capture.value_or(properties.on_host || options.dp_attention ? CaptureMode::kEager
                                                                                              : CaptureMode::kCore);
  // Ranks that each dispatch by their own costs would choose different graphs.
  runner.measure_costs = options.graphs.measure_costs && !options.deterministic && !options.dp_attention;
  runner.debug = options.graphs.debug;
  runner.compiler = options.graphs.compiler;
  if (options.graphs.torch_compile) {
    runner.decode_compiler = kFusedCompiler;
    runner.decode_compiler_max = options.graphs.torch_compile_max_batch;
  }
  runner.cache_dir = options.cache_dir;
  runner.programs = std::make_shared<ProfileCache>(ProfileCacheOptions{.root = options.cache_dir});
  TRY(runner.registry->compilers.check(runner.compiler).with_context("piecewise_cuda_graph_compiler"));

  const ir::DType dtype = TRY(choose_dtype(options.dtype, plan.config, properties));
  runner.embedding_rows = TRY(rows_of_images(options, plan, dtype));
  plan.model = {.dtype = dtype,
                .kv_cache_dtype = TRY(named_dtype("kv_cache_dtype", options.kv_cache_dtype)),
                .page_size = runner.page_size,
                .max_requests = runner.max_requests,
                .max_embeddings = std::max({runner.context_length, runner.max_tokens, runner.embedding_rows}),
                .context_length = runner.context_length,
                .tp_rank = layout.rank_in_stage(rank),
                .tp_size = options.tp_size,
                .ep_size = options.ep_size,
                .dp_rank = options.dp_attention ? options.replica : 0,
                .dp_size = options.dp_attention ? options.replicas : 1,
                .pp_stage = layout.stage_of(rank),
                .pp_size = options.pp_size};
  note_longrope(plan);
  Result<ModelGraphs> graphs = build_model(plan.config, plan.model, options.registry->ops, options.registry->families);
  if (options.tp_size > 1) graphs = std::move(graphs).with_context(fmt::format("tp_size: {}", options.tp_size));
  plan.graphs = TRY(std::move(graphs).with_context(options.model_path));
  plan.parameters = parameter_count(all_weights(plan.graphs));
  TRY(check_pass_names(options.graphs.disabled_passes, options.registry->passes)
          .with_context("cuda_graph_disable_passes"));
  TRY(run_graph_passes(options.graphs.disabled_passes, plan));
  TRY(plan_wanted_rows(device, plan));

  const LayerCaches caches = layer_caches(plan.graphs.body, plan.graphs.own_layers);
  runner.graphs = apply_rules({.mode = options.graphs.mode,
                               .disable_cuda_graph = options.graphs.disable_cuda_graph,
                               .disable_piecewise_cuda_graph = options.graphs.disable_piecewise_cuda_graph,
                               .enforce_piecewise_cuda_graph = options.graphs.enforce_piecewise_cuda_graph,
                               .generates = !plan.embedding && plan.config.num_labels == 0,
                               .architecture = plan.config.architecture,
                               .standard_gqa = caches.standard_gqa,
                               .undeclared_layers = caches.undeclared});
  // A budget covers only the graphs of the plan; full graphs are added after measurements, so they are off with a
  // budget.
  runner.choose_full = options.graphs.mode == GraphMode::kFullAndPiecewise && options.graphs.memory_budget == 0;
  plan.notes.insert(plan.notes.end(), runner.graphs.messages.begin(), runner.graphs.messages.end());
  if (std::string note = options.registry->piecewise_backends.of(properties.type).note(); !note.empty())
    plan.notes.push_back(std::move(note));
  if (!runner.graphs.prefill_whole)
    runner.split_ops = options.graphs.split_ops.empty()
                           ? default_split_ops(options.registry->ops)
                           : TRY(resolve_split_ops(options.registry->ops, options.graphs.split_ops)
                                     .with_context("cuda_graph_split_ops"));
  // Exchanges between halves of a forward belong to the same piece as the kernels that run beside them.
  if (runner.halves_from > 0 && options.graphs.split_ops.empty())
    std::erase_if(runner.split_ops, [&ops = options.registry->ops](const std::string& name) {
      const ir::OpDecl* op = ops.find(name);
      return op != nullptr && op->rows == ir::RowUse::kExchange;
    });
  TRY(plan_ladders(options, plan));
  if (runner.halves_from > max_padded_tokens(runner))
    plan.notes.push_back(
        fmt::format("two-batch overlap has no effect: no forward has {} tokens; chunked_prefill_size is {}",
                    runner.halves_from, runner.max_tokens));
  plan_vision(options, plan);
  TRY(plan_memory_shares(options, device, plan));
  return plan;
}

}  // namespace

Result<std::unique_ptr<Device>> open_device(const EngineOptions& options, int rank) {
  TRY(check_ranks(options));
  const int here = ranks_here(options);
  const int replicas = replicas_here(options);
  Result<std::unique_ptr<Device>> device = options.registry->devices.open(
      options.device, {.rank = options.replica % replicas * here + rank % here, .ranks = replicas * here});
  if (layout_of(options).ranks() == 1) return device;
  return std::move(device).with_context(
      options.pp_size == 1 ? fmt::format("tp_size: {}: rank {}", options.tp_size, rank)
                           : fmt::format("tp_size: {}, pp_size: {}: rank {}", options.tp_size, options.pp_size, rank));
}

Result<EnginePlan> plan_engine(const EngineOptions& options, Device& device, int rank) {
  EnginePlan plan = TRY(plan_once(options, device, rank));
  const std::optional<std::int64_t> fit = requests_with_states(plan);
  const std::int64_t usual = plan.runner.max_requests;
  if (options.max_running_requests > 0 || !fit || *fit >= usual) return plan;  // a requested number is kept
  EngineOptions fewer = options;
  fewer.max_running_requests = *fit;
  plan = TRY(plan_once(fewer, device, rank));
  plan.notes.push_back(
      fmt::format("{} requests run at once, as many as have room for their states, not {}", *fit, usual));
  return plan;
}

}  // namespace tessera
