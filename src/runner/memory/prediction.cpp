#include "tessera/runner/memory/prediction.h"

#include <algorithm>

#include "tessera/device/alignment.h"
#include "tessera/runner/graphs/make_executable.h"
#include "tessera/runner/memory/edit_buffers.h"
#include "tessera/runner/memory/exchange_sizes.h"
#include "tessera/runner/memory/input_buffers.h"
#include "tessera/runner/memory/measure_memory.h"
#include "tessera/runner/model_runner.h"
#include "tessera/runner/op_plans.h"
#include "tessera/runner/step_results.h"
#include "tessera/runner/vision/vision_runner.h"

namespace tessera {
namespace {

// Predicts the graphs of every size of the ladder. If `detail` is kEverySize, also predicts each size's memory need.
Result<RunnerMemory> predict_runner(const GraphRunner& runner, const DeviceProperties& device,
                                    PredictionDetail detail) {
  RunnerMemory memory{.role = runner.spec().role};
  for (const std::int64_t size : runner.spec().ladder) {
    GraphMemory graphs;
    if (runner.spec().captured) graphs = estimated_graphs(runner.executable().graph_need(runner.bucket(size)), device);
    memory.sizes.push_back({.size = size, .graphs = graphs});
    if (detail == PredictionDetail::kEverySize)
      memory.sizes.back().need = TRY(runner.executable().memory_need(runner.bucket(size)));
  }
  return memory;
}

// Makes executables for the prediction. The prediction uses only the shapes of the executables' values. The executables
// are never bound, so they need no addresses, and they never use the stream and the arena of their environment. This
// object must outlive the runners made with it.
class Shapes {
 public:
  static Result<std::unique_ptr<Shapes>> create(const ModelGraphs& graphs, const RunnerOptions& options,
                                                Device& device) {
    std::unique_ptr<Shapes> made(new Shapes);
    made->stream_ = TRY(device.create_stream("prediction"));
    made->arena_ = TRY(device.create_arena({.reserve_bytes = kDeviceAlignment, .name = "prediction"}));
    made->context_ = {.limits = plan_limits(options), .plans = {}, .layers = graphs.layers};
    made->device_ = &device;
    return made;
  }

  Result<GraphRunner> runner(RunnerSpec spec, const RunnerOptions& options) {
    const ExecutionEnvironment environment{.device = *device_,
                                           .stream = *stream_,
                                           .context = context_,
                                           .externals = externals_,
                                           .arena = *arena_,
                                           .workspace = *arena_,
                                           .warm = warm_};
    std::unique_ptr<Executable> made =
        TRY(make_executable(spec, options, environment, MemoryPlanKind::kPlanned, /*log=*/false));
    return GraphRunner(std::move(spec), std::move(made));
  }

 private:
  Shapes() = default;

  Device* device_ = nullptr;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Arena> arena_;
  ForwardContext context_;
  ExternalValues externals_;
  KernelVariants warm_;
};

}  // namespace

Result<MemoryReport> predict_memory(std::span<const GraphRunner> runners, const ModelGraphs& graphs,
                                    const RunnerOptions& options, Device& device, PredictionDetail detail) {
  using enum MemoryUse;
  MemoryReport report;
  MemoryNeed most;
  std::int64_t graph_objects = 0;
  ExchangeSizes exchanges;
  for (const GraphRunner& runner : runners) {
    TRY(add_exchanges(runner.spec().graph, runner.executable().largest(), exchanges));
    if (runner.spec().captured || runner.spec().runs_eagerly) {
      const MemoryNeed need = TRY(runner.executable().memory_need(runner.executable().largest()));
      most.arena_bytes = std::max(most.arena_bytes, need.arena_bytes);
      most.workspace_bytes = std::max(most.workspace_bytes, need.workspace_bytes);
    }
    if (std::ranges::find(kCapturedRoles, runner.spec().role) == kCapturedRoles.end()) continue;
    report.runners.push_back(TRY(predict_runner(runner, device.properties(), detail)));
    graph_objects += report.runners.back().graph_bytes();
  }
  const std::int64_t block = device.properties().block_bytes;
  report.set(kArena, align_up(most.arena_bytes, block));
  report.set(kWorkspace, align_up(most.workspace_bytes, block));
  const std::int64_t hidden = graphs.draft ? TRY(DraftHidden::bytes_needed(graphs.draft->body)) : 0;
  const std::int64_t ids = graphs.draft ? TargetIds::bytes_needed(graphs.draft->target_ids) : 0;
  report.set(kStaticInputs,
             InputBuffers::bytes_needed(input_limits(graphs, options)) +
                 EditBuffers::bytes_needed(vocabulary_of(graphs)) + align_up(hidden) + align_up(ids) +
                 align_up(TRY(EmbeddingRows::bytes_needed(graphs.body, options.embedding_rows, device)), block));
  const auto planned = all_graphs(graphs);
  const KernelTable* kernels = TRY(kernels_of(options, device));
  report.set(
      kPlans,
      TRY(OpPlans::bytes_needed(
          device,
          {.graphs = planned, .kernels = *kernels, .limits = plan_limits(options), .num_pages = options.num_pages})));
  report.set(kCommunication, device.properties().on_host
                                 ? host_exchange_bytes(exchanges, options.place, options.max_in_flight)
                                 : device_exchange_bytes(exchanges, options.place));
  report.set(kGraphObjects, graph_objects);
  if (graphs.adapted) report.set(kAdapters, TRY(AdapterTables::bytes_needed(graphs.adapted->layout)));
  report.set(kStepResults, StepResults::bytes_needed(options.max_in_flight, options.max_requests, options.max_tokens));
  return report;
}

Result<MemoryReport> predict_memory(const ModelGraphs& graphs, const RunnerOptions& options, Device& device,
                                    PredictionDetail detail) {
  const std::unique_ptr<Shapes> shapes = TRY(Shapes::create(graphs, options, device));
  std::vector<GraphRunner> runners;
  for (RunnerSpec& spec : TRY(make_runner_specs(graphs, options)))
    runners.push_back(TRY(shapes->runner(std::move(spec), options)));
  MemoryReport report = TRY(predict_memory(runners, graphs, options, device, detail));
  if (!graphs.vision) return report;
  const std::int64_t input_bytes = TRY(VisionInputs::bytes_needed(graphs.vision->graph, options.vision.max_patches));
  const GraphRunner tower = TRY(shapes->runner(vision_spec(*graphs.vision, options.vision), options));
  TRY(add_vision(tower, input_bytes, device.properties(), detail, report));
  return report;
}

Result<std::int64_t> predict_tower(const ModelGraphs& graphs, const RunnerOptions& options, Device& device) {
  const std::unique_ptr<Shapes> shapes = TRY(Shapes::create(graphs, options, device));
  const GraphRunner tower = TRY(shapes->runner(vision_spec(*graphs.vision, options.vision), options));
  const MemoryNeed need = TRY(tower.executable().memory_need(tower.executable().largest()));
  const std::int64_t inputs = TRY(VisionInputs::bytes_needed(graphs.vision->graph, options.vision.max_patches));
  return need.arena_bytes + need.workspace_bytes + inputs;
}

Status add_vision(const GraphRunner& tower, std::int64_t input_bytes, const DeviceProperties& device,
                  PredictionDetail detail, MemoryReport& report) {
  using enum MemoryUse;
  const MemoryNeed need = TRY(tower.executable().memory_need(tower.executable().largest()));
  const auto at_least = [&](MemoryUse use, std::int64_t bytes) {
    report.set(use, std::max(report[use], align_up(bytes, device.block_bytes)));
  };
  at_least(kArena, need.arena_bytes);
  at_least(kWorkspace, need.workspace_bytes);
  report.set(kStaticInputs, report[kStaticInputs] + input_bytes);
  report.runners.push_back(TRY(predict_runner(tower, device, detail)));
  report.set(kGraphObjects, report[kGraphObjects] + report.runners.back().graph_bytes());
  return ok_status();
}

}  // namespace tessera
