#include "tessera/piecewise/forward_memory.h"

#include <fmt/format.h>

#include <limits>

#include "tessera/device/alignment.h"

namespace tessera {

Result<ForwardMemory> ForwardMemory::create(const CompiledForward& forward, ForwardMemoryOptions options) {
  ForwardMemory memory(forward, std::move(options));
  memory.liveness_ = TRY(analyze_liveness(forward));
  std::int64_t offset = align_up(memory.options_.reserved_bytes);
  for (const std::int32_t output : forward.outputs) {
    memory.output_offsets_.push_back(offset);
    const ir::Type& type = forward.slots[static_cast<std::size_t>(output)].type;
    offset += align_up(TRY(ir::size_bytes(type, memory.options_.largest)));
  }
  return memory;
}

Result<SlotPlan> ForwardMemory::plan(const ir::Bucket& bucket) const {
  for (std::size_t s = 0; s < bucket.sizes.size(); ++s) {
    if (bucket.sizes[s] > options_.largest.sizes[s]) {
      return internal_error(fmt::format("{}: bucket {} exceeds the largest, {}", forward_->name, bucket.to_string(),
                                        options_.largest.to_string()));
    }
  }
  std::vector<LiveRange> ranges = TRY(live_ranges(*forward_, liveness_, bucket, output_offsets_));
  constexpr std::int32_t kLastStep = std::numeric_limits<std::int32_t>::max() - 1;
  if (options_.reserved_bytes > 0) {
    ranges.push_back({.bytes = options_.reserved_bytes, .first = 0, .last = kLastStep, .fixed_offset = 0});
  }
  const MemoryPlan planned = TRY(options_.planner(ranges));
  for (std::size_t r = 0; r < liveness_.ranges.size(); ++r) {
    if (planned.offsets[r] >= 0 && planned.offsets[r] + ranges[r].bytes <= planned.size_bytes) continue;
    const Slot& slot = forward_->slots[static_cast<std::size_t>(liveness_.ranges[r].slot)];
    return internal_error(fmt::format("{} at {}: %{} at offset {} lies outside the plan's {} bytes", forward_->name,
                                      bucket.to_string(), slot.name, planned.offsets[r], planned.size_bytes));
  }
  SlotPlan plan{.offsets = {}, .size_bytes = planned.size_bytes, .lower_bound_bytes = planned.lower_bound_bytes};
  plan.offsets.reserve(forward_->slots.size());
  for (const std::int32_t range : liveness_.range_of_slot)
    plan.offsets.push_back(range < 0 ? -1 : planned.offsets[static_cast<std::size_t>(range)]);
  return plan;
}

Result<std::int64_t> ForwardMemory::unshared_bytes(const ir::Bucket& bucket) const {
  std::int64_t bytes = 0;
  for (const Liveness::Range& r : liveness_.ranges)
    bytes += align_up(TRY(ir::size_bytes(forward_->slots[static_cast<std::size_t>(r.slot)].type, bucket)));
  return bytes;
}

}  // namespace tessera
