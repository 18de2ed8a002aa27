#include "tessera/runner/memory/memory_report.h"

#include <fmt/format.h>

#include <algorithm>

namespace tessera {
namespace {

std::string mib(std::int64_t bytes) { return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20)); }

}  // namespace

std::string_view memory_use_name(MemoryUse use) {
  switch (use) {
    case MemoryUse::kWeights: return "weights";
    case MemoryUse::kKvCache: return "kv_cache";
    case MemoryUse::kArena: return "arena";
    case MemoryUse::kWorkspace: return "workspace";
    case MemoryUse::kStaticInputs: return "static_inputs";
    case MemoryUse::kPlans: return "attention";
    case MemoryUse::kCommunication: return "communication";
    case MemoryUse::kGraphObjects: return "graph_objects";
    case MemoryUse::kStepResults: return "step_results";
    case MemoryUse::kAdapters: return "adapters";
  }
  return "unknown";
}

std::int64_t RunnerMemory::graph_bytes() const {
  std::int64_t sum = 0;
  for (const SizeMemory& size : sizes) sum += size.graphs.bytes;
  return sum;
}

MemoryReport::Entries MemoryReport::entries() const {
  Entries entries;
  for (std::size_t i = 0; i < bytes_.size(); ++i)
    if (bytes_[i]) entries.emplace_back(static_cast<MemoryUse>(i), *bytes_[i]);
  return entries;
}

MemoryReport::Entries MemoryReport::device_entries() const {
  Entries kept = entries();
  std::erase_if(kept, [](const auto& entry) { return entry.first == MemoryUse::kStepResults; });
  return kept;
}

std::int64_t MemoryReport::forwards() const {
  std::int64_t sum = 0;
  using enum MemoryUse;
  for (const MemoryUse use : {kArena, kWorkspace, kStaticInputs, kPlans, kCommunication, kAdapters})
    sum += (*this)[use];
  return sum;
}

const RunnerMemory* MemoryReport::runner(RunnerRole role) const {
  const auto found = std::ranges::find(runners, role, &RunnerMemory::role);
  return found == runners.end() ? nullptr : &*found;
}

std::string memory_line(const MemoryReport& taken, const MemoryReport& predicted) {
  using enum MemoryUse;
  const auto buffers = [](const MemoryReport& report) { return report[kStaticInputs] + report[kPlans]; };
  return fmt::format(
      "weights {}, KV cache {}, arena {} (predicted {}), workspace {} ({}), static buffers {} ({}), communication "
      "{} ({}), graph objects {} ({}), {} are left",
      mib(taken[kWeights]), mib(taken[kKvCache]), mib(taken[kArena]), mib(predicted[kArena]), mib(taken[kWorkspace]),
      mib(predicted[kWorkspace]), mib(buffers(taken)), mib(buffers(predicted)), mib(taken[kCommunication]),
      mib(predicted[kCommunication]), mib(taken[kGraphObjects]), mib(predicted[kGraphObjects]), mib(taken.available));
}

}  // namespace tessera
