#include "tessera/runner/prediction.h"

#include <algorithm>

#include "tessera/runner/executables.h"

namespace tessera {

Result<Prediction> predict_memory(const ModelGraphs& graphs, const RunnerOptions& options, Device& device) {
  // Shapes are asked for, nothing is bound: the environment stays unused but for device and context.
  const std::unique_ptr<Stream> stream = TRY(device.create_stream("prediction"));
  const std::unique_ptr<Arena> arena =
      TRY(device.create_arena({.reserve_bytes = kDeviceAlignment, .name = "prediction"}));
  ForwardContext context{.attention = std::vector<AttentionMetadata>(graphs.body.cache_groups.size()),
                         .page_size = options.page_size,
                         .deterministic = options.deterministic};
  const ExternalValues externals;
  const ExecutionEnvironment environment{.device = device,
                                         .stream = *stream,
                                         .context = context,
                                         .externals = externals,
                                         .arena = *arena,
                                         .workspace = *arena};
  const RunnerExecutables made = TRY(make_executables(graphs, options, environment, context, MemoryPlanKind::kPlanned));

  Prediction prediction;
  const auto add = [&](const Executable& executable, const ir::Bucket& bucket) -> Result<MemoryNeed> {
    const MemoryNeed need = TRY(executable.memory_need(bucket));
    prediction.arena_bytes = std::max(prediction.arena_bytes, need.arena_bytes);
    prediction.workspace_bytes = std::max(prediction.workspace_bytes, need.workspace_bytes);
    return need;
  };
  for (const std::int64_t size : options.prefill_sizes) {
    prediction.prefill.push_back({size, TRY(add(*made.prefill, prefill_bucket(options, size)))});
  }
  for (const std::int64_t size : options.decode_sizes) {
    prediction.decode.push_back({size, TRY(add(*made.decode, decode_bucket(options, size)))});
  }
  for (const Executable* executable : {made.head.get(), made.choose.get(), made.logprobs.get()})
    TRY(add(*executable, executable->largest()));
  prediction.static_input_bytes = static_input_bytes(graphs, options);
  return prediction;
}

}  // namespace tessera
