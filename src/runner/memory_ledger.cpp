#include "tessera/runner/memory_ledger.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/runner/graph_runner.h"
#include "tessera/runner/runner_parts.h"

namespace tessera {
namespace {

std::string mib(std::int64_t bytes) { return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20)); }

}  // namespace

std::int64_t memory_reserve(const DeviceProperties& device) {
  constexpr std::int64_t kMost = std::int64_t{512} << 20;
  return std::min(kMost, device.memory_bytes / 16) + device.memory_bytes / 64;
}

std::int64_t graph_bytes(const GraphStats& stats, std::int64_t estimate, double of_estimate) {
  if (stats.bytes > 0) return stats.bytes;
  return static_cast<std::int64_t>(of_estimate * static_cast<double>(estimate));
}

RunnerMemory runner_memory(const GraphRunner& runner, const DeviceProperties& device, double of_estimate) {
  RunnerMemory memory{.name = std::string(runner.name())};
  const GraphNeed need = runner.executable().graph_need();
  const std::int64_t estimate = need.graphs * device.graph_bytes + need.operators * device.graph_node_bytes;
  for (const std::int64_t size : runner.report().captured) {
    const GraphStats stats = runner.executable().graph_stats(runner.bucket(size));
    memory.sizes.push_back({.size = size,
                            .graphs = need.graphs,
                            .nodes = stats.nodes,
                            .graph_bytes = graph_bytes(stats, estimate, of_estimate)});
  }
  return memory;
}

MemoryLedger measure_memory(const RunnerParts& parts, double of_estimate, std::int64_t available) {
  MemoryLedger ledger{.weights = parts.weights.total_bytes(),
                      .kv_cache = parts.kv->bytes(),
                      .arena = static_cast<std::int64_t>(parts.arena->size()),
                      .workspace = static_cast<std::int64_t>(parts.workspace->size()),
                      .static_inputs = parts.inputs->bytes() + parts.edits->bytes(),
                      .plans = parts.plans->bytes(),
                      .available = available,
                      .predicted = parts.predicted};
  for (const RunnerRole role : {RunnerRole::kPrefill, RunnerRole::kDecode}) {
    ledger.runners.push_back(runner_memory(parts.runner(role), parts.device.properties(), of_estimate));
    ledger.graph_objects += ledger.runners.back().graph_bytes();
  }
  return ledger;
}

std::string memory_line(const MemoryLedger& ledger) {
  const WorkingMemory& predicted = ledger.predicted;
  const std::int64_t buffers = ledger.static_inputs + ledger.plans;
  return fmt::format(
      "weights {}, KV cache {}, arena {} (predicted {}), workspace {} ({}), static buffers {} ({}), graph objects {} "
      "({}), "
      "{} are left",
      mib(ledger.weights), mib(ledger.kv_cache), mib(ledger.arena), mib(predicted.arena), mib(ledger.workspace),
      mib(predicted.workspace), mib(buffers), mib(predicted.static_inputs + predicted.plans), mib(ledger.graph_objects),
      mib(predicted.graph_objects), mib(ledger.available));
}

}  // namespace tessera
