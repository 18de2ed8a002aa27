#include "tessera/compile/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "tessera/device/alignment.h"

namespace tessera {
namespace {

bool live_together(const LiveRange& a, const LiveRange& b) { return a.first <= b.last && b.first <= a.last; }

std::int64_t most_alive(std::span<const LiveRange> ranges) {
  // For each step, bytes that become live minus bytes that are no longer live.
  std::map<std::int32_t, std::int64_t> change;
  for (const LiveRange& r : ranges) {
    change[r.first] += align_up(r.bytes);
    change[r.last + 1] -= align_up(r.bytes);
  }
  std::int64_t alive = 0;
  std::int64_t most = 0;
  for (const auto& [step, bytes] : change) most = std::max(most, alive += bytes);
  return most;
}

}  // namespace

Result<MemoryPlan> plan_memory(std::span<const LiveRange> ranges) {
  MemoryPlan plan;
  plan.offsets.assign(ranges.size(), -1);
  plan.lower_bound_bytes = most_alive(ranges);

  std::vector<std::size_t> order(ranges.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const bool fixed_a = ranges[a].fixed_offset >= 0;
    const bool fixed_b = ranges[b].fixed_offset >= 0;
    if (fixed_a != fixed_b) return fixed_a;
    return ranges[a].bytes > ranges[b].bytes;
  });

  std::vector<std::size_t> placed;  // sorted by offset
  for (const std::size_t i : order) {
    const LiveRange& range = ranges[i];
    std::int64_t offset = std::max<std::int64_t>(range.fixed_offset, 0);
    if (range.fixed_offset < 0) {
      for (const std::size_t p : placed) {
        if (!live_together(range, ranges[p])) continue;
        if (offset + align_up(range.bytes) <= plan.offsets[p]) break;
        offset = std::max(offset, plan.offsets[p] + align_up(ranges[p].bytes));
      }
    }
    plan.offsets[i] = offset;
    plan.size_bytes = std::max(plan.size_bytes, offset + align_up(range.bytes));
    placed.insert(std::upper_bound(placed.begin(), placed.end(), offset,
                                   [&](std::int64_t o, std::size_t p) { return o < plan.offsets[p]; }),
                  i);
  }
  TRY(check_memory_plan(ranges, plan));
  return plan;
}

Status check_memory_plan(std::span<const LiveRange> ranges, const MemoryPlan& plan) {
  if (plan.offsets.size() != ranges.size()) {
    return internal_error(fmt::format("memory plan: {} offsets for {} ranges", plan.offsets.size(), ranges.size()));
  }
  std::vector<std::size_t> by_offset(ranges.size());
  std::iota(by_offset.begin(), by_offset.end(), std::size_t{0});
  std::sort(by_offset.begin(), by_offset.end(),
            [&](std::size_t a, std::size_t b) { return plan.offsets[a] < plan.offsets[b]; });
  for (std::size_t i = 0; i < by_offset.size(); ++i) {
    const std::size_t a = by_offset[i];
    const std::int64_t end = plan.offsets[a] + ranges[a].bytes;
    if (plan.offsets[a] < 0 || end > plan.size_bytes ||
        plan.offsets[a] % static_cast<std::int64_t>(kDeviceAlignment) != 0) {
      return internal_error(
          fmt::format("memory plan: range {} at offset {} with {} bytes does not lie aligned in an arena of {} bytes",
                      a, plan.offsets[a], ranges[a].bytes, plan.size_bytes));
    }
    for (std::size_t j = i + 1; j < by_offset.size() && plan.offsets[by_offset[j]] < end; ++j) {
      const std::size_t b = by_offset[j];
      if (ranges[b].bytes > 0 && live_together(ranges[a], ranges[b])) {
        return internal_error(
            fmt::format("memory plan: ranges {} and {} are both alive in step {} and share bytes at offset {}", a, b,
                        std::max(ranges[a].first, ranges[b].first), plan.offsets[b]));
      }
    }
  }
  return ok_status();
}

}  // namespace tessera
