#include "tessera/runner/prediction.h"

#include <algorithm>

#include "tessera/device/alignment.h"
#include "tessera/runner/edit_buffers.h"
#include "tessera/runner/input_buffers.h"
#include "tessera/runner/make_executable.h"
#include "tessera/runner/model_runner.h"
#include "tessera/runner/op_plans.h"
#include "tessera/runner/step_results.h"

namespace tessera {
namespace {

GraphCost cost_of(const Executable& executable, const DeviceProperties& device) {
  const GraphNeed need = executable.graph_need();
  return {.graphs = need.graphs,
          .operators = need.operators,
          .bytes = need.graphs * device.graph_bytes + need.operators * device.graph_node_bytes};
}

Status add(const Executable& executable, const ir::Bucket& bucket, WorkingMemory& memory) {
  const MemoryNeed need = TRY(executable.memory_need(bucket));
  memory.arena = std::max(memory.arena, need.arena_bytes);
  memory.workspace = std::max(memory.workspace, need.workspace_bytes);
  return ok_status();
}

}  // namespace

Result<Prediction> predict_memory(std::span<const GraphRunner> runners, const ModelGraphs& graphs,
                                  const RunnerOptions& options, Device& device, PredictionDetail detail) {
  Prediction prediction;
  WorkingMemory& memory = prediction.memory;
  for (const GraphRunner& runner : runners) {
    const RunnerSpec& spec = runner.spec();
    if (spec.captured || spec.runs_eagerly) TRY(add(runner.executable(), runner.executable().largest(), memory));
    const bool decode = spec.role == RunnerRole::kDecode;
    if (spec.captured) {
      const GraphCost cost = cost_of(runner.executable(), device.properties());
      memory.graph_objects += std::ssize(spec.ladder) * cost.bytes;
      (decode ? prediction.decode_graphs : prediction.prefill_graphs) = cost;
    }
    if (detail != PredictionDetail::kEverySize || (!decode && spec.role != RunnerRole::kPrefill)) continue;
    for (const std::int64_t size : spec.ladder) {
      (decode ? prediction.decode : prediction.prefill)
          .push_back({size, TRY(runner.executable().memory_need(runner.bucket(size)))});
    }
  }
  const std::int64_t block = device.properties().block_bytes;
  memory.arena = align_up(memory.arena, block);
  memory.workspace = align_up(memory.workspace, block);
  memory.static_inputs =
      InputBuffers::bytes_needed(input_limits(graphs, options)) + EditBuffers::bytes_needed(vocabulary_of(graphs));
  const auto planned = all_graphs(graphs);
  memory.plans = TRY(OpPlans::bytes_needed(device, {.graphs = planned,
                                                    .kernels = *TRY(kernels_of(options, device)),
                                                    .limits = plan_limits(options),
                                                    .num_pages = options.num_pages}));
  memory.step_results = StepResults::bytes_needed(ModelRunner::kMaxInFlight, options.max_requests, options.max_tokens);
  return prediction;
}

Result<Prediction> predict_memory(const ModelGraphs& graphs, const RunnerOptions& options, Device& device,
                                  PredictionDetail detail) {
  // Shapes are asked for, nothing is bound: the environment stays unused but for device and context.
  const std::unique_ptr<Stream> stream = TRY(device.create_stream("prediction"));
  const std::unique_ptr<Arena> arena =
      TRY(device.create_arena({.reserve_bytes = kDeviceAlignment, .name = "prediction"}));
  ForwardContext context{.limits = plan_limits(options), .plans = {}, .layers = graphs.layers};
  const ExternalValues externals;
  KernelVariants warm;
  const ExecutionEnvironment environment{.device = device,
                                         .stream = *stream,
                                         .context = context,
                                         .externals = externals,
                                         .arena = *arena,
                                         .workspace = *arena,
                                         .warm = warm};
  std::vector<GraphRunner> runners;
  for (RunnerSpec& spec : TRY(make_runner_specs(graphs, options))) {
    std::unique_ptr<Executable> made =
        TRY(make_executable(spec, options, environment, MemoryPlanKind::kPlanned, /*log=*/false));
    runners.emplace_back(std::move(spec), std::move(made));
  }
  return predict_memory(runners, graphs, options, device, detail);
}

}  // namespace tessera
