#include "tessera/runner/memory/measure_memory.h"

#include <algorithm>

#include "tessera/comm/communicator.h"
#include "tessera/runner/graphs/graph_runner.h"
#include "tessera/runner/runner_parts.h"
#include "tessera/runner/vision/vision_runner.h"

namespace tessera {

std::int64_t memory_reserve(const DeviceProperties& device) {
  constexpr std::int64_t kMost = std::int64_t{512} << 20;
  return std::min(kMost, device.memory_bytes / 16) + device.memory_bytes / 64;
}

std::int64_t graph_bytes(const GraphStats& stats, std::int64_t estimate, double of_estimate) {
  if (stats.bytes > 0) return stats.bytes;
  return static_cast<std::int64_t>(of_estimate * static_cast<double>(estimate));
}

GraphMemory estimated_graphs(const GraphNeed& need, const DeviceProperties& device) {
  return {.graphs = need.graphs,
          .nodes = need.operators,
          .bytes = need.graphs * device.graph_bytes + need.operators * device.graph_node_bytes};
}

RunnerMemory runner_memory(const GraphRunner& runner, const DeviceProperties& device, double of_estimate) {
  RunnerMemory memory{.role = runner.spec().role};
  for (const std::int64_t size : runner.report().captured) {
    const GraphNeed need = runner.executable().graph_need(runner.bucket(size));
    const GraphMemory estimate = estimated_graphs(need, device);
    const GraphMemory full = estimated_graphs(
        {.graphs = 1, .operators = need.operators + runner.executable().graph().num_split_ops()}, device);
    const bool both = runner.has_full(size);
    const GraphStats stats = runner.executable().graph_stats(runner.bucket(size));
    memory.sizes.push_back(
        {.size = size,
         .graphs = {.graphs = estimate.graphs + (both ? full.graphs : 0),
                    .nodes = stats.nodes,
                    .bytes = graph_bytes(stats, estimate.bytes + (both ? full.bytes : 0), of_estimate)}});
  }
  return memory;
}

std::int64_t communication_bytes(const RunnerModel& model) {
  Communicator* const communicator = model.options.communicator;
  if (communicator == nullptr) return 0;
  return model.device.properties().on_host ? communicator->host_bytes() : communicator->device_state().bytes();
}

MemoryReport measure_memory(const RunnerParts& parts, double of_estimate, std::int64_t available) {
  using enum MemoryUse;
  MemoryReport report;
  report.available = available;
  report.set(kWeights, parts.model.weights.total_bytes());
  report.set(kKvCache, parts.memory().kv.bytes());
  report.set(kArena, static_cast<std::int64_t>(parts.arena().size()));
  report.set(kWorkspace, static_cast<std::int64_t>(parts.workspace().size()));
  report.set(kStaticInputs, parts.memory().input_bytes());
  report.set(kPlans, parts.memory().plans.bytes());
  report.set(kCommunication, communication_bytes(parts.model));
  std::int64_t graph_objects = 0;
  if (parts.memory().adapters != nullptr) report.set(kAdapters, parts.memory().adapters->bytes());
  for (const RunnerRole role : kCapturedRoles) {
    const GraphRunner* const runner = parts.find_runner(role);
    if (runner == nullptr) continue;
    report.runners.push_back(runner_memory(*runner, parts.model.device.properties(), of_estimate));
    graph_objects += report.runners.back().graph_bytes();
  }
  if (parts.vision() != nullptr) {
    report.set(kStaticInputs, report[kStaticInputs] + parts.vision()->input_bytes());
    report.runners.push_back(runner_memory(parts.vision()->runner(), parts.model.device.properties(), of_estimate));
    graph_objects += report.runners.back().graph_bytes();
  }
  report.set(kGraphObjects, graph_objects);
  return report;
}

}  // namespace tessera
