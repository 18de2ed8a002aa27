#include "tessera/compile/joins.h"

#include <algorithm>
#include <optional>

#include "tessera/compile/regions.h"

namespace tessera {
namespace {

// Returns the value of `call` that a joined kernel does not have to store. This is the first result of `call`. If
// `call` has no result, it is the first operand, provided that `call` writes this operand. Returns nothing if the
// operand is a view, because other instructions may read its memory under another name.
std::optional<ir::ValueId> passed_on(const Program& program, const ir::Node& call) {
  if (!call.results.empty()) return call.results[0];
  if (call.operands.empty() || !call.mutates[0]) return std::nullopt;
  const ir::ValueId written = call.operands[0];
  if (program.values[static_cast<std::size_t>(written.value())].view_of != kNoValue) return std::nullopt;
  return written;
}

// Returns whether two conditions are true: only the next instruction reads the value that `first` passes on, and it
// reads this value as its first operand. If the next instruction overwrites the value, later readers do not count,
// because they read the new content.
bool feeds_only(const Program& program, std::span<const ir::ValueId> outputs, std::size_t first) {
  const ir::Node& call = program.instructions[first].call;
  const ir::Node& next = program.instructions[first + 1].call;
  const std::optional<ir::ValueId> value = passed_on(program, call);
  if (!value || next.operands.empty() || next.operands[0] != *value) return false;
  if (next.mutates[0]) return next.results.empty() && std::ranges::count(next.operands, *value) == 1;
  std::ptrdiff_t uses = std::ranges::count(outputs, *value);
  for (const Instruction& instruction : program.instructions)
    uses += std::ranges::count(instruction.call.operands, *value);
  uses += std::ranges::count(program.values, *value, &ProgramValue::view_of);
  return uses == (call.results.empty() ? 2 : 1);  // an operand that the call writes counts as a use too
}

// Returns whether two calls only read the same first operand, and the second call does not depend on the first.
bool reads_same(const ir::Node& call, const ir::Node& next) {
  const auto is_result = [&](ir::ValueId value) {
    return std::ranges::find(call.results, value) != call.results.end();
  };
  const auto writes = [](const ir::Node& node) { return std::ranges::find(node.mutates, true) != node.mutates.end(); };
  return !call.operands.empty() && !next.operands.empty() && call.operands[0] == next.operands[0] &&
         std::ranges::none_of(next.operands, is_result) && !writes(call) && !writes(next);
}

bool matches(const Program& program, std::span<const ir::ValueId> outputs, std::size_t first,
             const JoinedKernelDef& kernel) {
  const std::size_t count = kernel.num_ops();
  if (first + count > program.instructions.size()) return false;
  for (std::size_t i = 0; i < count; ++i)
    if (program.instructions[first + i].call.op != kernel.ops[i]) return false;
  const auto& calls = program.instructions;
  for (std::size_t i = first; i + 1 < first + count; ++i) {
    const bool fits =
        kernel.side_by_side ? reads_same(calls[i].call, calls[i + 1].call) : feeds_only(program, outputs, i);
    if (!fits) return false;
  }
  return true;
}

// Returns how many instructions, beginning with `first`, the joined kernel can replace. The result is 0 if it can
// replace none.
std::size_t joined_from(const Program& program, std::span<const ir::ValueId> outputs, std::size_t first,
                        const JoinedKernelDef& kernel) {
  if (kernel.region != nullptr) return region_from(program, outputs, first, *kernel.region);
  return matches(program, outputs, first, kernel) ? kernel.num_ops() : 0;
}

}  // namespace

void add_joins(Program& program, std::span<const ir::ValueId> outputs, std::span<const JoinedKernelDef> joined) {
  for (std::size_t i = 0; i < program.instructions.size(); ++i)
    for (const JoinedKernelDef& kernel : joined)
      if (const std::size_t count = joined_from(program, outputs, i, kernel); count > 0)
        program.instructions[i].joins.push_back({.name = std::string(kernel.name),
                                                 .instructions = count,
                                                 .most_rows = kernel.most_rows,
                                                 .bind = kernel.bind});
}

}  // namespace tessera
