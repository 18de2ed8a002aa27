#include "tessera/runner/prediction.h"

#include <algorithm>
#include <array>

#include "tessera/device/alignment.h"
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

Result<Prediction> predict_memory(const RunnerExecutables& made, const ModelGraphs& graphs,
                                  const RunnerOptions& options, Device& device, PredictionDetail detail) {
  Prediction prediction;
  WorkingMemory& memory = prediction.memory;
  for (const Executable* executable : {made.prefill.get(), made.head.get(), made.choose.get(), made.logprobs.get()})
    TRY(add(*executable, executable->largest(), memory));
  if (options.graphs.prefill) {
    prediction.prefill_graphs = cost_of(*made.prefill, device.properties());
    memory.graph_objects += std::ssize(options.prefill_sizes) * prediction.prefill_graphs.bytes;
  }
  if (options.graphs.decode) {
    TRY(add(*made.decode, made.decode->largest(), memory));
    prediction.decode_graphs = cost_of(*made.decode, device.properties());
    memory.graph_objects += std::ssize(options.decode_sizes) * prediction.decode_graphs.bytes;
  }
  if (detail == PredictionDetail::kEverySize) {
    for (const std::int64_t size : options.prefill_sizes)
      prediction.prefill.push_back({size, TRY(made.prefill->memory_need(prefill_bucket(options, size)))});
    for (const std::int64_t size : options.decode_sizes)
      prediction.decode.push_back({size, TRY(made.decode->memory_need(decode_bucket(options, size)))});
  }
  const std::int64_t block = device.properties().block_bytes;
  memory.arena = align_up(memory.arena, block);
  memory.workspace = align_up(memory.workspace, block);
  memory.static_inputs = static_input_bytes(graphs, options);
  const std::array<const ir::Graph*, 1> planned{&graphs.body};
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
  ForwardContext context{.limits = plan_limits(options), .plans = {}};
  const ExternalValues externals;
  const ExecutionEnvironment environment{.device = device,
                                         .stream = *stream,
                                         .context = context,
                                         .externals = externals,
                                         .arena = *arena,
                                         .workspace = *arena};
  const RunnerExecutables made = TRY(make_executables(graphs, options, environment, context, MemoryPlanKind::kPlanned,
                                                      /*log=*/false));
  return predict_memory(made, graphs, options, device, detail);
}

}  // namespace tessera
