#include "tessera/piecewise/halved_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "tessera/ops/collective/row_exchange.h"

namespace tessera {
namespace {

bool runs_in_halves(const Program& program, std::size_t instruction) {
  return std::ranges::any_of(program.halves,
                             [&](const Halves& run) { return instruction >= run.first && instruction < run.end; });
}

// Goes through a forward instruction by instruction, and marks the slots that hold rows gathered from all ranks.
class GatheredRows {
 public:
  explicit GatheredRows(const CompiledForward& forward)
      : forward_(forward), is_gathered_(forward.slots.size(), false) {}

  // Returns whether the instruction reads or makes gathered rows. If so, marks the slots that the instruction writes: a
  // reduce-scatter's slots as not gathered, all others as gathered.
  bool pass(const CompiledPart& part, const ir::Node& call) {
    const auto slot = [&](ir::ValueId id) {
      return static_cast<std::size_t>(forward_.memory_of[static_cast<std::size_t>(part.slots[id.index()])]);
    };
    const bool gathers = call.op == kAllGatherRows.name;
    const bool reads = std::ranges::any_of(call.operands, [&](ir::ValueId id) { return is_gathered_[slot(id)]; });
    if (!gathers && !reads) return false;
    const bool makes = call.op != kReduceScatter.name;
    for (const ir::ValueId id : call.results) is_gathered_[slot(id)] = makes;
    for (std::size_t i = 0; i < call.operands.size(); ++i)
      if (call.mutates[i]) is_gathered_[slot(call.operands[i])] = makes;
    return true;
  }

 private:
  const CompiledForward& forward_;
  std::vector<bool> is_gathered_;  // for each slot that owns memory, whether it holds gathered rows
};

}  // namespace

std::string why_not_in_halves(const CompiledForward& forward) {
  GatheredRows gathered(forward);
  std::int64_t halved = 0;  // number of instruction ranges that run in halves
  bool some_in_halves = false;
  std::string whole;  // the last instruction that uses gathered rows and does not run in halves
  for (const CompiledPart& part : forward.parts) {
    halved += std::ssize(part.program->halves);
    for (std::size_t i = 0; i < part.program->instructions.size(); ++i) {
      const ir::Node& call = part.program->instructions[i].call;
      if (!gathered.pass(part, call)) continue;
      if (runs_in_halves(*part.program, i))
        some_in_halves = true;
      else
        whole = fmt::format("operator {} in {}", call.op, part.name);
    }
  }
  if (halved == 0) return "no piece has an exchange between ranks with operators beside it";
  if (some_in_halves && !whole.empty())
    return fmt::format("{} would read the rows of all ranks in another order than others", whole);
  return "";
}

}  // namespace tessera
