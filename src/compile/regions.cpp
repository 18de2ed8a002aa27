#include "tessera/compile/regions.h"

#include <algorithm>
#include <array>
#include <set>

namespace tessera {
namespace {

using Carried = std::array<ir::ValueId, RegionPattern::kCarriedValues>;

// Returns the program's value that `value` refers to. Returns kNoValue if `value` refers to an operand or a result that
// its call does not have.
ir::ValueId value_of(std::span<const Instruction> calls, const RegionValue& value, const Carried& carried) {
  if (value.kind == RegionValue::Kind::kCarried) return carried[static_cast<std::size_t>(value.index)];
  const ir::Node& call = calls[static_cast<std::size_t>(value.call)].call;
  const std::vector<ir::ValueId>& values = value.kind == RegionValue::Kind::kResult ? call.results : call.operands;
  const auto index = static_cast<std::size_t>(value.index);
  return index < values.size() ? values[index] : kNoValue;
}

Carried carry(std::span<const Instruction> calls, std::span<const RegionValue> values, const Carried& before) {
  Carried after{};
  for (std::size_t i = 0; i < after.size(); ++i) after[i] = value_of(calls, values[i], before);
  return after;
}

bool is_repetition(std::span<const Instruction> calls, const RegionPattern& pattern, const Carried& carried) {
  for (std::size_t i = 0; i < calls.size(); ++i)
    if (calls[i].call.op != pattern.repeated[i]) return false;
  return std::ranges::all_of(pattern.links, [&](const RegionLink& link) {
    const ir::ValueId operand = value_of(calls, {RegionValue::Kind::kOperand, link.call, link.operand}, carried);
    return operand != kNoValue && operand == value_of(calls, link.is, carried);
  });
}

// Adds to `made` the values that the calls make. These are the calls' results, and the operands that the calls write,
// except states.
void add_made(const Program& program, std::span<const Instruction> calls, std::set<ir::ValueId>& made) {
  for (const Instruction& instruction : calls) {
    const ir::Node& call = instruction.call;
    made.insert(call.results.begin(), call.results.end());
    for (std::size_t i = 0; i < call.operands.size(); ++i)
      if (call.mutates[i] && program.value(call.operands[i]).kind != ir::ValueKind::kState)
        made.insert(call.operands[i]);
  }
}

bool is_read_outside(const Program& program, std::span<const ir::ValueId> outputs, std::size_t first, std::size_t end,
                     const std::set<ir::ValueId>& inner) {
  const auto is_inner = [&](ir::ValueId value) { return inner.contains(value); };
  if (std::ranges::any_of(outputs, is_inner) || std::ranges::any_of(program.values, is_inner, &ProgramValue::view_of))
    return true;
  for (std::size_t i = 0; i < program.instructions.size(); ++i)
    if ((i < first || i >= end) && std::ranges::any_of(program.instructions[i].call.operands, is_inner)) return true;
  return false;
}

}  // namespace

std::size_t region_from(const Program& program, std::span<const ir::ValueId> outputs, std::size_t first,
                        const RegionPattern& pattern) {
  const std::span all(program.instructions);
  if (all[first].call.op != pattern.first) return 0;
  Carried carried = carry(all.subspan(first, 1), pattern.begin, {});
  const std::size_t count = pattern.repeated.size();
  std::size_t end = first + 1;
  std::set<ir::ValueId> inner;
  while (end + count <= all.size() && is_repetition(all.subspan(end, count), pattern, carried)) {
    // The values that the last call of this repetition makes are added only if another repetition follows. Otherwise
    // the region ends with this call, and its values may be read outside of the region.
    add_made(program, all.subspan(end - 1, count), inner);
    carried = carry(all.subspan(end, count), pattern.next, carried);
    end += count;
  }
  return end == first + 1 || is_read_outside(program, outputs, first, end, inner) ? 0 : end - first;
}

}  // namespace tessera
