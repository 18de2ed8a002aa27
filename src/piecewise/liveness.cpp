#include "tessera/piecewise/liveness.h"

#include <fmt/format.h>

namespace tessera {

Result<Liveness> analyze_liveness(const StitchingGraph& graph, const ir::OpTable& ops) {
  Liveness live;
  live.range_of_slot.assign(graph.slots.size(), -1);
  std::int32_t step = 0;
  for (const Part& part : graph.parts) {
    for (const ir::Node& node : part.graph.nodes) {
      const ir::OpDecl* decl = TRY(ops.get(node.op));
      for (const ir::ValueId operand : node.operands) {
        const std::int32_t range = live.range_of_slot[static_cast<std::size_t>(part.slots[operand.index()])];
        if (range >= 0) live.ranges[static_cast<std::size_t>(range)].last = step;
      }
      for (const ir::ValueId result : node.results) {
        const std::int32_t slot = part.slots[result.index()];
        auto& range = live.range_of_slot[static_cast<std::size_t>(slot)];
        if (decl->execution == ir::Execution::kView) {
          range = live.range_of_slot[static_cast<std::size_t>(part.slots[node.operands[0].index()])];
          if (range < 0)
            return unimplemented(fmt::format("%{} is a view of an input, weight or state",
                                             graph.slots[static_cast<std::size_t>(slot)].name));
        } else {
          range = static_cast<std::int32_t>(live.ranges.size());
          live.ranges.push_back({slot, step, step});
        }
      }
      ++step;
    }
  }
  for (const std::int32_t output : graph.outputs) {
    const std::int32_t range = live.range_of_slot[static_cast<std::size_t>(output)];
    if (range < 0)
      return invalid_argument(fmt::format("%{} is an output and not made by the forward",
                                          graph.slots[static_cast<std::size_t>(output)].name));
    live.ranges[static_cast<std::size_t>(range)].last = step;
  }
  return live;
}

Result<std::vector<LiveRange>> live_ranges(const StitchingGraph& graph, const Liveness& liveness,
                                           const ir::Bucket& bucket, std::span<const std::int64_t> output_offsets) {
  std::vector<LiveRange> ranges;
  ranges.reserve(liveness.ranges.size());
  for (const Liveness::Range& r : liveness.ranges) {
    const std::int64_t bytes = TRY(ir::size_bytes(graph.slots[static_cast<std::size_t>(r.slot)].type, bucket));
    ranges.push_back({.bytes = bytes, .first = r.first, .last = r.last});
  }
  for (std::size_t i = 0; i < output_offsets.size(); ++i) {
    const std::int32_t range = liveness.range_of_slot[static_cast<std::size_t>(graph.outputs[i])];
    LiveRange& output = ranges[static_cast<std::size_t>(range)];
    output.fixed_offset = output_offsets[i];
    output.first = 0;  // its place is kept free from the start, so that no bucket's plan moves it
  }
  return ranges;
}

}  // namespace tessera
