#include "tessera/runner/executables.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "tessera/base/log.h"
#include "tessera/base/progress.h"
#include "tessera/device/alignment.h"
#include "tessera/model/sampler.h"
#include "tessera/ops/backend.h"
#include "tessera/ops/registry.h"
#include "tessera/piecewise/chain.h"
#include "tessera/piecewise/splitter.h"
#include "tessera/runner/edit_buffers.h"
#include "tessera/runner/kv_storage.h"

namespace tessera {
using ir::Symbol;

ir::Bucket prefill_bucket(const RunnerOptions& options, std::int64_t tokens) {
  ir::Bucket bucket;
  bucket[Symbol::kTokens] = tokens;
  bucket[Symbol::kPages] = options.num_pages;
  return bucket;
}

ir::Bucket decode_bucket(const RunnerOptions& options, std::int64_t requests) {
  ir::Bucket bucket = prefill_bucket(options, requests);
  bucket[Symbol::kRequests] = requests;
  bucket[Symbol::kRows] = requests;
  return bucket;
}

ir::Bucket head_bucket(const RunnerOptions& options, std::int64_t rows) {
  ir::Bucket bucket;
  bucket[Symbol::kTokens] = max_padded_tokens(options);  // rows are gathered from wherever they are
  bucket[Symbol::kRows] = rows;
  return bucket;
}

ir::Bucket choice_bucket(std::int64_t rows) {
  ir::Bucket bucket;
  bucket[Symbol::kRows] = rows;
  return bucket;
}

std::int64_t max_padded_tokens(const RunnerOptions& options) {
  std::int64_t most = options.max_tokens;
  if (!options.prefill_sizes.empty()) most = std::max(most, options.prefill_sizes.back());
  if (!options.decode_sizes.empty()) most = std::max(most, options.decode_sizes.back());
  return most;
}

std::int64_t max_head_rows(const RunnerOptions& options) {
  return std::max(kMaxHeadRows, options.decode_sizes.empty() ? 0 : options.decode_sizes.back());
}

std::int64_t vocabulary_of(const ModelGraphs& graphs) {
  return *graphs.head.value(graphs.head.outputs[0]).type.shape.back().constant();
}

Result<std::int64_t> hidden_bytes(const ModelGraphs& graphs, const RunnerOptions& options) {
  return ir::size_bytes(graphs.body.value(graphs.body.outputs[0]).type,
                        prefill_bucket(options, max_padded_tokens(options)));
}

Result<std::int64_t> choice_logits_offset(const ModelGraphs& graphs, const RunnerOptions& options) {
  const std::int64_t rows = max_head_rows(options);
  ir::Bucket largest = decode_bucket(options, rows);
  largest[Symbol::kTokens] = std::max(rows, max_padded_tokens(options));
  std::int64_t offset = 0;
  for (const ir::Graph* graph : {&graphs.body, &graphs.head, &graphs.sampler})
    offset += align_up(TRY(ir::size_bytes(graph->value(graph->outputs[0]).type, largest)));
  return offset;
}

InputLimits input_limits(const ModelGraphs& graphs, const RunnerOptions& options) {
  const ir::Type& hidden = graphs.body.value(graphs.body.outputs[0]).type;
  InputLimits limits{.max_tokens = max_padded_tokens(options),
                     .max_requests = options.max_requests,
                     .max_rows = max_head_rows(options),
                     .cache_groups = {},
                     .hidden_size = *hidden.shape.back().constant(),
                     .dtype = hidden.dtype};
  for (const ir::CacheGroup& group : graphs.body.cache_groups) limits.cache_groups.push_back(group.name);
  return limits;
}

std::int64_t static_input_bytes(const ModelGraphs& graphs, const RunnerOptions& options) {
  return InputBuffers::bytes_needed(input_limits(graphs, options)) + EditBuffers::bytes_needed(vocabulary_of(graphs));
}

PlanLimits plan_limits(const RunnerOptions& options) {
  return {.max_requests = options.max_requests,
          .max_tokens = max_padded_tokens(options),
          .max_pages_per_request = pages_for(options.context_length, options.page_size),
          .page_size = options.page_size,
          .deterministic = options.deterministic};
}

Result<const KernelTable*> kernels_of(const RunnerOptions& options, const Device& device) {
  if (options.kernels != nullptr) return options.kernels;
  return TRY(backend_of(device.properties().kind))->kernels;
}

Result<RunnerExecutables> make_executables(const ModelGraphs& graphs, const RunnerOptions& options,
                                           const ExecutionEnvironment& environment,
                                           const ForwardContext& decode_context, MemoryPlanKind memory, bool log) {
  ProfileCache cache({.root = options.cache_dir});
  const std::unique_ptr<Compiler> compiler =
      TRY(options.compilers.make(options.compiler, {.device = environment.device,
                                                    .ops = op_table(),
                                                    .kernels = *TRY(kernels_of(options, environment.device)),
                                                    .options = {.deterministic = options.deterministic},
                                                    .cache = &cache}));
  Progress progress("Compiling graphs", 5, "graphs", log && options.show_progress);
  const auto make = [&](const ir::Graph& graph, std::span<const std::string> split_ops, const ForwardContext& context,
                        const ir::Bucket& largest, std::int64_t reserved_bytes) -> Result<std::unique_ptr<Executable>> {
    StitchingGraph stitched = TRY(split_graph(graph, op_table(), split_ops));
    const std::string name = stitched.name;
    const std::int64_t pieces = stitched.num_pieces();
    if (log) {
      log_info("split", "{}: pieces {}, split ops {}{}", name, pieces, stitched.num_split_ops(),
               split_ops.empty() ? "" : fmt::format(" ({})", fmt::join(split_ops, ", ")));
      for (const std::string& note : stitched.notes) log_info("split", "{}: {}", name, note);
    }
    const auto start = std::chrono::steady_clock::now();
    const ExecutionEnvironment on{.device = environment.device,
                                  .stream = environment.stream,
                                  .context = context,
                                  .externals = environment.externals,
                                  .arena = environment.arena,
                                  .workspace = environment.workspace,
                                  .history = environment.history,
                                  .backend = environment.backend};
    std::unique_ptr<Executable> compiled = TRY(Executable::create(
        std::move(stitched), *compiler, on,
        {.largest = largest, .memory = memory, .reserved_bytes = reserved_bytes, .planner = options.planner}));
    if (log) {
      const CompileCounts& counts = compiled->compiled().counts;
      log_info("compile", "{}: pieces {}, compiled by {} in {:.1f} ms: {} programs compiled, {} from the cache", name,
               pieces, compiler->name(),
               std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count(),
               counts.compiled, counts.loaded);
    }
    progress.advance(1);
    return compiled;
  };
  const ir::Graph head = TRY(chain("head", std::vector{&graphs.head, &graphs.sampler}));
  const ir::Graph decode = TRY(chain("decode", std::vector{&graphs.body, &graphs.head, &graphs.sampler}));
  const std::int64_t max_rows = max_head_rows(options);

  RunnerExecutables made;
  const ForwardContext& context = environment.context;
  made.prefill =
      TRY(make(graphs.body, options.split_ops, context, prefill_bucket(options, max_padded_tokens(options)), 0));
  made.head = TRY(make(head, {}, context, head_bucket(options, max_rows), TRY(hidden_bytes(graphs, options))));
  made.decode = TRY(make(decode, {}, decode_context, decode_bucket(options, max_rows), 0));
  const ir::Bucket choice = choice_bucket(kMaxChoiceRows);
  const ir::Type& logits = graphs.choose.value(graphs.choose.states[0]).type;
  const std::int64_t reserved = TRY(choice_logits_offset(graphs, options)) + TRY(ir::size_bytes(logits, choice));
  made.choose = TRY(make(graphs.choose, {}, context, choice, reserved));
  made.logprobs = TRY(make(graphs.logprobs, {}, context, choice, reserved));
  return made;
}

}  // namespace tessera
