#include "tessera/engine/engine_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "tessera/model/checkpoint.h"
#include "tessera/ops/registry.h"
#include "tessera/piecewise/splitter.h"

namespace tessera {
namespace {

constexpr std::int64_t kCpuChunk = 2048;
constexpr std::int64_t kCudaChunk = 8192;
// Of a GPU's memory, for weights and KV cache, where nothing else is said: the rest is for activations, graphs,
// workspaces and what the driver keeps.
constexpr double kCudaMemFraction = 0.85;
constexpr std::int64_t kDefaultMaxRequests = 256;
constexpr std::int64_t kCpuMaxKvBytes = std::int64_t{2} << 30;

Result<ir::DType> choose_dtype(const std::string& name, const ModelConfig& config, const DeviceProperties& device) {
  if (name == "float32") return ir::DType::kFloat32;
  if (name == "bfloat16") return ir::DType::kBFloat16;
  if (name == "float16" || name == "half") return ir::DType::kFloat16;
  if (name != "auto")
    return invalid_argument(fmt::format("--dtype: \"{}\" is none of auto, float32, bfloat16, float16", name));
  // Without matrix instructions for it, a narrow type only costs conversions on a CPU.
  if (device.kind == DeviceKind::kCpu && !device.has_native_bf16) return ir::DType::kFloat32;
  if (config.dtype == StoredDtype::kBF16) return ir::DType::kBFloat16;
  if (config.dtype == StoredDtype::kF16 && device.kind != DeviceKind::kCpu) return ir::DType::kFloat16;
  return ir::DType::kFloat32;
}

Status at_least_one(std::int64_t value, std::string_view flag) {
  if (value >= 0) return ok_status();
  return invalid_argument(fmt::format("{}: {} is not accepted; 1 or more is", flag, value));
}

// Sizes above `max` are dropped with a note; an error where none is left.
Result<std::vector<std::int64_t>> capped(std::vector<std::int64_t> sizes, std::int64_t max, std::string_view flag,
                                         std::vector<std::string>& notes) {
  const auto end = std::upper_bound(sizes.begin(), sizes.end(), max);
  if (end == sizes.begin()) {
    return invalid_argument(fmt::format("{}: all sizes are above {}, the smallest is {}", flag, max, sizes.front()));
  }
  if (end != sizes.end()) {
    notes.push_back(fmt::format("{}: {} sizes above {} are dropped", flag, sizes.end() - end, max));
    sizes.erase(end, sizes.end());
  }
  return sizes;
}

Status plan_ladders(const GraphOptions& graphs, EnginePlan& plan) {
  RunnerOptions& runner = plan.runner;
  const std::int64_t chunk = runner.max_tokens;
  const std::int64_t max_tokens = graphs.piecewise_max_tokens;  // 0: not given
  if (graphs.piecewise_tokens.empty()) {
    runner.prefill_sizes = prefill_ladder(max_tokens > 0 ? max_tokens : chunk, graphs.schedule);
  } else {
    runner.prefill_sizes = TRY(capped(graphs.piecewise_tokens, max_tokens > 0 ? max_tokens : kMaxLadderSize,
                                      "--piecewise-cuda-graph-tokens", plan.notes));
  }
  if (runner.graphs.prefill && runner.prefill_sizes.back() < chunk) {
    plan.notes.push_back(
        fmt::format("the largest prefill graph has {} tokens and a forward may have {}: larger forwards are eager",
                    runner.prefill_sizes.back(), chunk));
  }
  const std::int64_t max_batch =
      std::min(graphs.decode_max_batch > 0 ? graphs.decode_max_batch : kDefaultMaxRequests, runner.max_requests);
  runner.decode_sizes = graphs.decode_batches.empty()
                            ? decode_ladder(max_batch)
                            : TRY(capped(graphs.decode_batches, runner.max_requests, "--cuda-graph-bs", plan.notes));
  return ok_status();
}

// Pages for as many tokens as memory allows, as requests can use, and, without an explicit share, as 2 GiB hold on a
// CPU (B8).
Result<std::int64_t> plan_pages(const EngineOptions& options, const EnginePlan& plan, const DeviceProperties& device) {
  const std::int64_t page_bytes = TRY(KvStorage::bytes_per_page(plan.graphs.body));
  const std::int64_t pages_per_request = pages_for(plan.runner.context_length, plan.runner.page_size);
  const std::int64_t useful = options.max_total_tokens > 0 ? pages_for(options.max_total_tokens, plan.runner.page_size)
                                                           : pages_per_request * plan.runner.max_requests;
  std::int64_t budget = kCpuMaxKvBytes;
  if (options.mem_fraction_static != 0 || device.kind != DeviceKind::kCpu) {
    const double fraction = options.mem_fraction_static != 0 ? options.mem_fraction_static : kCudaMemFraction;
    const bool accepted = fraction >= 0.1 && fraction <= 0.95;  // false for NaN
    if (!accepted) {
      return invalid_argument(
          fmt::format("--mem-fraction-static: {} is not accepted; 0.1 to 0.95 is", options.mem_fraction_static));
    }
    const std::int64_t weights =
        plan.config.parameter_count() * static_cast<std::int64_t>(ir::dtype_size(plan.model.dtype));
    budget = static_cast<std::int64_t>(fraction * static_cast<double>(device.memory_bytes)) - weights;
  }
  const std::int64_t pages = std::min(useful, budget / page_bytes) + 1;  // and the reserved one
  if (pages <= 1) {
    return resource_exhausted(fmt::format(
        "no memory is left for the KV cache: a page takes {} bytes, {} are available; raise --mem-fraction-static",
        page_bytes, budget));
  }
  // Slots are 32-bit numbers.
  return std::min<std::int64_t>(pages, INT32_MAX / plan.runner.page_size);
}

// A path that cannot be looked at (too long, no permission) is no folder; reading it gives the error.
bool is_folder(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
}

}  // namespace

std::string model_folder(const std::string& model_path) {
  if (is_folder(model_path)) return model_path;
  const std::string parent = std::filesystem::path(model_path).parent_path().string();
  return parent.empty() ? "." : parent;  // config.json itself, here
}

Result<WeightSource> weight_source(const EngineOptions& options) {
  if (options.load_format == LoadFormat::kDummy) return dummy_source(options.random_seed);
  return checkpoint_source(TRY(Checkpoint::open(model_folder(options.model_path))));
}

Result<EnginePlan> plan_engine(const EngineOptions& options, const DeviceProperties& device) {
  TRY(at_least_one(options.context_length, "--context-length"));
  TRY(at_least_one(options.chunked_prefill_size, "--chunked-prefill-size"));
  TRY(at_least_one(options.max_running_requests, "--max-running-requests"));
  TRY(at_least_one(options.max_queued_requests, "--max-queued-requests"));
  TRY(at_least_one(options.max_total_tokens, "--max-total-tokens"));
  if (options.page_size < 1 || options.page_size > 1024)
    return invalid_argument(fmt::format("--page-size: {} is not accepted; 1 to 1024 is", options.page_size));

  EnginePlan plan;
  plan.config = TRY(ModelConfig::read(options.model_path));
  RunnerOptions& runner = plan.runner;
  runner.page_size = options.page_size;
  runner.max_tokens = options.chunked_prefill_size > 0  ? options.chunked_prefill_size
                      : device.kind == DeviceKind::kCpu ? kCpuChunk
                                                        : kCudaChunk;
  runner.max_requests = options.max_running_requests > 0 ? options.max_running_requests : kDefaultMaxRequests;
  runner.context_length = options.context_length > 0 ? options.context_length : plan.config.max_position_embeddings;
  if (runner.context_length > plan.config.max_position_embeddings) {
    return invalid_argument(fmt::format("--context-length: {} is more than the model's {} positions",
                                        runner.context_length, plan.config.max_position_embeddings));
  }
  runner.memory_plan = options.memory_plan;
  runner.decode_padding = !options.graphs.disable_cuda_graph_padding;
  runner.show_progress = options.show_progress;
  runner.deterministic = options.deterministic;

  plan.model = {.dtype = TRY(choose_dtype(options.dtype, plan.config, device)),
                .page_size = runner.page_size,
                .max_requests = runner.max_requests};
  plan.graphs = TRY(build_model(plan.config, plan.model, op_table()).with_context(options.model_path));

  runner.graphs = apply_rules({.mode = options.graphs.mode,
                               .disable_cuda_graph = options.graphs.disable_cuda_graph,
                               .disable_piecewise_cuda_graph = options.graphs.disable_piecewise_cuda_graph,
                               .enforce_piecewise_cuda_graph = options.graphs.enforce_piecewise_cuda_graph,
                               .standard_gqa = plan.config.num_attention_heads % plan.config.num_key_value_heads == 0});
  plan.notes.insert(plan.notes.end(), runner.graphs.messages.begin(), runner.graphs.messages.end());
  if (!runner.graphs.prefill_whole)
    runner.split_ops = options.graphs.split_ops.empty() ? default_split_ops(op_table()) : options.graphs.split_ops;
  TRY(check_split_ops(op_table(), runner.split_ops).with_context("--cuda-graph-split-ops"));
  TRY(plan_ladders(options.graphs, plan));
  runner.num_pages = TRY(plan_pages(options, plan, device));
  return plan;
}

}  // namespace tessera
