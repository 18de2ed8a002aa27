// Computes the memory plan, which gives each value an offset in one arena. The plan depends on the steps in which the
// values are live.
//
// The shapes in every bucket (a set of sizes) are known in advance, so nothing is allocated while a forward runs. Two
// values may share bytes only if no step needs both. check_memory_plan() checks a plan for this. plan_memory() is a
// pure function. The caller decides when a value is live (piecewise/liveness.h).
//
//   steps:     0      1      2      3
//   a (256 B)  [======]                    a at 0
//   b (256 B)         [======]             b at 512, because c takes bytes 0 to 511 in step 2
//   c (512 B)                [======]      c at 0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/status.h"

namespace tessera {

// The memory that one value needs: `bytes` bytes from the start of step `first` to the end of step `last`.
struct LiveRange {
  std::int64_t bytes = 0;
  std::int32_t first = 0;
  std::int32_t last = 0;
  // The offset if the caller fixes it, and otherwise -1. Outputs have a fixed offset, because an output must have the
  // same offset in all buckets.
  std::int64_t fixed_offset = -1;
};

struct MemoryPlan {
  std::vector<std::int64_t> offsets;   // one for each range; multiples of kDeviceAlignment
  std::int64_t size_bytes = 0;         // the arena size that the plan needs
  std::int64_t lower_bound_bytes = 0;  // the maximum number of bytes that are live in one step; no plan needs less
};

// Places ranges with fixed offsets first. Then places the other ranges from the largest to the smallest. Each gets the
// lowest offset that is free in all its steps ("greedy by size", Pisarchyk & Lee, Efficient Memory Management for Deep
// Neural Net Inference, 2020). The time is O(n²) for n ranges. A 36-layer model has a few hundred ranges. Fails if two
// fixed ranges share bytes in one step.
Result<MemoryPlan> plan_memory(std::span<const LiveRange> ranges);

// Returns ok if no two ranges that are live in the same step share a byte, all ranges lie in [0, size_bytes), and all
// offsets are multiples of kDeviceAlignment.
Status check_memory_plan(std::span<const LiveRange> ranges, const MemoryPlan& plan);

}  // namespace tessera
