// From a stitching graph to the memory its values need: in which steps each result lives.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/compile/memory_plan.h"
#include "tessera/ir/op_decl.h"
#include "tessera/piecewise/stitching.h"

namespace tessera {

// Which slots need memory of their own. A view shares the memory of what it views, and the shared
// memory lives as long as the last of them is used.
struct Liveness {
  struct Range {
    std::int32_t slot;   // a result; its type gives the bytes
    std::int32_t first;  // step in which it is made; steps count nodes through all parts
    std::int32_t last;   // step that uses it last; the last step of all for outputs
  };
  std::vector<Range> ranges;
  std::vector<std::int32_t> range_of_slot;  // [slots]: index into ranges; -1: input, weight or state
};

Result<Liveness> analyze_liveness(const StitchingGraph& graph, const ir::OpTable& ops);

// The same with the bucket's sizes. `output_offsets` fixes where the outputs lie, [outputs]; may be empty.
Result<std::vector<LiveRange>> live_ranges(const StitchingGraph& graph, const Liveness& liveness,
                                           const ir::Bucket& bucket, std::span<const std::int64_t> output_offsets);

}  // namespace tessera
