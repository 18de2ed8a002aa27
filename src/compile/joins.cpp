#include "tessera/compile/joins.h"

#include <algorithm>

namespace tessera {
namespace {

// Whether only the next instruction reads the first result of `first`, and as its first operand.
bool feeds_only(const Program& program, std::span<const ir::ValueId> outputs, std::size_t first) {
  const ir::Node& call = program.instructions[first].call;
  const ir::Node& next = program.instructions[first + 1].call;
  if (call.results.empty() || next.operands.empty() || next.operands[0] != call.results[0] || next.mutates[0])
    return false;
  const ir::ValueId value = call.results[0];
  std::ptrdiff_t uses = std::ranges::count(outputs, value);
  for (const Instruction& instruction : program.instructions)
    uses += std::ranges::count(instruction.call.operands, value);
  uses += std::ranges::count(program.values, value, &ProgramValue::view_of);
  return uses == 1;
}

bool matches(const Program& program, std::span<const ir::ValueId> outputs, std::size_t first,
             const JoinedKernelDef& kernel) {
  const std::size_t count = kernel.num_ops();
  if (first + count > program.instructions.size()) return false;
  for (std::size_t i = 0; i < count; ++i)
    if (program.instructions[first + i].call.op != kernel.ops[i]) return false;
  for (std::size_t i = 0; i + 1 < count; ++i)
    if (!feeds_only(program, outputs, first + i)) return false;
  return true;
}

}  // namespace

void add_joins(Program& program, std::span<const ir::ValueId> outputs, std::span<const JoinedKernelDef> joined) {
  for (std::size_t i = 0; i < program.instructions.size(); ++i)
    for (const JoinedKernelDef& kernel : joined)
      if (matches(program, outputs, i, kernel))
        program.instructions[i].joins.push_back({.name = std::string(kernel.name),
                                                 .instructions = kernel.num_ops(),
                                                 .most_rows = kernel.most_rows,
                                                 .bind = kernel.bind});
}

}  // namespace tessera
