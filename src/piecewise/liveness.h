// Computes in which steps each value of a compiled forward is live. The memory plan follows from these live ranges. The
// analysis reads compiled programs, so a value that a compiler removed takes no memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/compile/memory_plan.h"
#include "tessera/piecewise/compiled_forward.h"

namespace tessera {

// The live ranges of the slots that own memory. A view shares the memory of the value that it views. The memory is live
// until the last use of the value or of any of its views.
struct Liveness {
  struct Range {
    std::int32_t slot;   // a result, whose type determines the number of bytes
    std::int32_t first;  // the step that first writes the slot; steps count instructions through all parts
    std::int32_t last;   // the step that uses the slot last; for an output, the number of steps
  };
  // Extends a range to `step`, but only in some buckets. If instructions run as one joined kernel or in halves, all
  // their values are in use until the last of these instructions. For a joined kernel, the extension holds in buckets
  // in which `instruction` of `program` has at most `most_rows` rows. For halves, it holds in buckets that run in
  // `halves`.
  struct Extension {
    std::int32_t range = -1;
    std::int32_t step = -1;
    const Program* program = nullptr;
    const Instruction* instruction = nullptr;  // null if the extension is for halves
    std::int64_t most_rows = 0;
    const Halves* halves = nullptr;  // null if the extension is for a joined kernel
  };
  std::vector<Range> ranges;
  std::vector<Extension> extensions;
  // For each slot, the index of its range. It is -1 if the slot is made outside the forward or never used.
  std::vector<std::int32_t> range_of_slot;
};

// Finds the ranges of all slots. Returns kInvalidArgument if there is an output that no instruction makes.
Result<Liveness> analyze_liveness(const CompiledForward& forward);

// Returns the ranges with the bucket's sizes. `output_offsets` has the fixed offset of each output. If it is empty, no
// offset is fixed.
Result<std::vector<LiveRange>> live_ranges(const CompiledForward& forward, const Liveness& liveness,
                                           const ir::Bucket& bucket, std::span<const std::int64_t> output_offsets);

}  // namespace tessera
