// From a compiled forward to the memory that its values need: in which steps each value lives. Programs decide it, so a
// value that a compiler removed takes no memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/compile/memory_plan.h"
#include "tessera/piecewise/compiled_forward.h"

namespace tessera {

// Which slots need memory of their own. A view shares the memory of what it views, and the shared memory lives as long
// as the last of them is used.
struct Liveness {
  struct Range {
    std::int32_t slot;   // a result; its type gives the bytes
    std::int32_t first;  // step that first writes it; steps count instructions through all parts
    std::int32_t last;   // step that uses it last; one past the last step for outputs
  };
  // Instructions that run as one kernel, or in halves, use at their last one what any of them does: there the range
  // lasts until `step`, in buckets in which `instruction` of `program` has at most `most_rows` rows, or which `halves`
  // serve.
  struct Extension {
    std::int32_t range = -1;
    std::int32_t step = -1;
    const Program* program = nullptr;
    const Instruction* instruction = nullptr;  // null: halves
    std::int64_t most_rows = 0;
    const Halves* halves = nullptr;  // null: a joined kernel
  };
  std::vector<Range> ranges;
  std::vector<Extension> extensions;
  std::vector<std::int32_t> range_of_slot;  // [slots]: index into ranges; -1: from outside, or used by no instruction
};

// kInvalidArgument for an output that no instruction makes.
Result<Liveness> analyze_liveness(const CompiledForward& forward);

// The same with the bucket's sizes. `output_offsets` fixes where the outputs lie, [outputs]; may be empty.
Result<std::vector<LiveRange>> live_ranges(const CompiledForward& forward, const Liveness& liveness,
                                           const ir::Bucket& bucket, std::span<const std::int64_t> output_offsets);

}  // namespace tessera
