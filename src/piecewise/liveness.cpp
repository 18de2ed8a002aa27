#include "tessera/piecewise/liveness.h"

#include <fmt/format.h>

#include <algorithm>

namespace tessera {
namespace {

// Begins the live range of the slot's memory at `step`, or extends the range to `step`. Inputs, weights and states
// already have memory and are skipped.
void use(const CompiledForward& forward, std::int32_t slot, std::int32_t step, Liveness& live) {
  const std::int32_t owner = forward.memory_of[static_cast<std::size_t>(slot)];
  if (forward.slots[static_cast<std::size_t>(owner)].kind != ir::ValueKind::kResult) return;
  std::int32_t& range = live.range_of_slot[static_cast<std::size_t>(owner)];
  if (range < 0) {
    range = static_cast<std::int32_t>(live.ranges.size());
    live.ranges.push_back({owner, step, step});
  }
  live.ranges[static_cast<std::size_t>(range)].last = step;
}

// Extends the live ranges of all values that the part's instructions `first` … `end` - 1 use. Each range then lasts
// until the last of these instructions. `step` is the step of instruction `first`. `how` says for which buckets the
// extension is valid.
void extend(const CompiledForward& forward, const CompiledPart& part, std::size_t first, std::size_t end,
            std::int32_t step, Liveness::Extension how, Liveness& live) {
  how.program = part.program.get();
  how.step = step + static_cast<std::int32_t>(end - first) - 1;
  const auto use_until_last = [&](ir::ValueId id) {
    const std::int32_t owner = forward.memory_of[static_cast<std::size_t>(part.slots[id.index()])];
    how.range = live.range_of_slot[static_cast<std::size_t>(owner)];
    if (how.range >= 0) live.extensions.push_back(how);
  };
  for (std::size_t i = first; i < end; ++i) {
    const ir::Node& call = part.program->instructions[i].call;
    std::ranges::for_each(call.operands, use_until_last);
    std::ranges::for_each(call.results, use_until_last);
  }
}

}  // namespace

Result<Liveness> analyze_liveness(const CompiledForward& forward) {
  Liveness live;
  live.range_of_slot.assign(forward.slots.size(), -1);
  std::int32_t step = 0;
  for (const CompiledPart& part : forward.parts) {
    for (const Instruction& instruction : part.program->instructions) {
      for (const ir::ValueId operand : instruction.call.operands) use(forward, part.slots[operand.index()], step, live);
      for (const ir::ValueId result : instruction.call.results) use(forward, part.slots[result.index()], step, live);
      ++step;
    }
  }
  step = 0;
  for (const CompiledPart& part : forward.parts) {
    const std::vector<Instruction>& instructions = part.program->instructions;
    for (const Halves& run : part.program->halves)
      extend(forward, part, run.first, run.end, step + static_cast<std::int32_t>(run.first), {.halves = &run}, live);
    for (std::size_t i = 0; i < instructions.size(); ++i, ++step)
      for (const Join& join : instructions[i].joins)
        extend(forward, part, i, i + join.instructions, step,
               {.instruction = &instructions[i], .most_rows = join.most_rows}, live);
  }
  for (std::size_t s = 0; s < live.range_of_slot.size(); ++s)
    live.range_of_slot[s] = live.range_of_slot[static_cast<std::size_t>(forward.memory_of[s])];
  for (const std::int32_t output : forward.outputs) {
    const std::int32_t range = live.range_of_slot[static_cast<std::size_t>(output)];
    if (range < 0)
      return invalid_argument(fmt::format("%{} is an output and not made by the forward",
                                          forward.slots[static_cast<std::size_t>(output)].name));
    live.ranges[static_cast<std::size_t>(range)].last = step;
  }
  return live;
}

Result<std::vector<LiveRange>> live_ranges(const CompiledForward& forward, const Liveness& liveness,
                                           const ir::Bucket& bucket, std::span<const std::int64_t> output_offsets) {
  std::vector<LiveRange> ranges;
  ranges.reserve(liveness.ranges.size());
  for (const Liveness::Range& r : liveness.ranges) {
    const std::int64_t bytes = TRY(ir::size_bytes(forward.slots[static_cast<std::size_t>(r.slot)].type, bucket));
    ranges.push_back({.bytes = bytes, .first = r.first, .last = r.last});
  }
  for (const Liveness::Extension& e : liveness.extensions) {
    const bool runs =
        e.halves != nullptr ? e.halves->serve(bucket) : TRY(e.program->rows_of(*e.instruction, bucket)) <= e.most_rows;
    if (!runs) continue;
    LiveRange& range = ranges[static_cast<std::size_t>(e.range)];
    range.last = std::max(range.last, e.step);
  }
  for (std::size_t i = 0; i < output_offsets.size(); ++i) {
    const std::int32_t range = liveness.range_of_slot[static_cast<std::size_t>(forward.outputs[i])];
    LiveRange& output = ranges[static_cast<std::size_t>(range)];
    output.fixed_offset = output_offsets[i];
    output.first = 0;  // no other value may use the output's place, not even before the output is written
  }
  return ranges;
}

}  // namespace tessera
