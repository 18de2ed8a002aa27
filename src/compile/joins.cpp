#include "tessera/compile/joins.h"

#include <algorithm>
#include <optional>
#include <set>

#include "tessera/ops/layers/decoder_layer_ops.h"

namespace tessera {
namespace {

// Returns the value of `call` that a joined kernel keeps to itself: its first result, or the operand that it writes if
// it has no result. Returns nothing for a view: a reader of the memory under it would miss what is not written.
std::optional<ir::ValueId> passed_on(const Program& program, const ir::Node& call) {
  if (!call.results.empty()) return call.results[0];
  if (call.operands.empty() || !call.mutates[0]) return std::nullopt;
  const ir::ValueId written = call.operands[0];
  if (program.values[static_cast<std::size_t>(written.value())].view_of != kNoValue) return std::nullopt;
  return written;
}

// Returns whether only the next instruction reads what `first` passes on, and as its first operand.
bool feeds_only(const Program& program, std::span<const ir::ValueId> outputs, std::size_t first) {
  const ir::Node& call = program.instructions[first].call;
  const ir::Node& next = program.instructions[first + 1].call;
  const std::optional<ir::ValueId> value = passed_on(program, call);
  if (!value || next.operands.empty() || next.operands[0] != *value || next.mutates[0]) return false;
  std::ptrdiff_t uses = std::ranges::count(outputs, *value);
  for (const Instruction& instruction : program.instructions)
    uses += std::ranges::count(instruction.call.operands, *value);
  uses += std::ranges::count(program.values, *value, &ProgramValue::view_of);
  return uses == (call.results.empty() ? 2 : 1);  // counts the call's own use if it writes an operand
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

// Returns whether the instructions from `first` on are a decoder layer of `stream` and its norm `normed`; if so, both
// become those of the next layer.
bool is_layer(const Program& program, std::size_t first, ir::ValueId& stream, ir::ValueId& normed) {
  if (first + kDecoderLayerOps.size() > program.instructions.size()) return false;
  std::array<const ir::Node*, kDecoderLayerOps.size()> calls{};
  for (std::size_t i = 0; i < calls.size(); ++i) {
    calls[i] = &program.instructions[first + i].call;
    if (calls[i]->op != kDecoderLayerOps[i]) return false;
  }
  const auto [qkv, store, attention, o, norm, gate_up, gate, down, next] = calls;
  const auto reads = [](const ir::Node* call, std::size_t operand, ir::ValueId value) {
    return call->operands.size() > operand && call->operands[operand] == value;
  };
  if (!reads(qkv, 0, normed) || !reads(store, 0, qkv->results[0]) || !reads(attention, 0, store->results[0]) ||
      attention->operands.size() < 4 || !reads(store, 3, attention->operands[1]) ||
      !reads(store, 4, attention->operands[2]) || !reads(o, 0, attention->operands[3]) ||
      !reads(norm, 0, o->results[0]) || !reads(norm, 1, stream) || !reads(gate_up, 0, norm->results[0]) ||
      !reads(gate, 0, gate_up->results[0]) || !reads(down, 0, gate->results[0]) || !reads(next, 0, down->results[0]) ||
      !reads(next, 1, norm->results[1]))
    return false;
  normed = next->results[0];
  stream = next->results[1];
  return true;
}

// Returns how many instructions from `first` on are a norm and decoder layers whose results nobody else reads; 0: none
// begins here.
std::size_t layers_from(const Program& program, std::span<const ir::ValueId> outputs, std::size_t first) {
  const ir::Node& norm = program.instructions[first].call;
  if (norm.op != kFirstLayerNorm) return 0;
  ir::ValueId stream = norm.operands[0];
  ir::ValueId normed = norm.results[0];
  std::size_t end = first + 1;
  std::set<ir::ValueId> inner;
  while (is_layer(program, end, stream, normed)) {
    for (std::size_t i = end - 1; i < end - 1 + kDecoderLayerOps.size(); ++i) {
      const ir::Node& call = program.instructions[i].call;
      inner.insert(call.results.begin(), call.results.end());
      if (call.op == "attention") inner.insert(call.operands[3]);
    }
    end += kDecoderLayerOps.size();
  }
  if (end == first + 1) return 0;
  const auto is_inner = [&](ir::ValueId value) { return inner.contains(value); };
  if (std::ranges::any_of(outputs, is_inner) || std::ranges::any_of(program.values, is_inner, &ProgramValue::view_of))
    return 0;
  for (std::size_t i = 0; i < program.instructions.size(); ++i)
    if ((i < first || i >= end) && std::ranges::any_of(program.instructions[i].call.operands, is_inner)) return 0;
  return end - first;
}

// Returns how many instructions from `first` on the kernel runs; 0: it does not serve.
std::size_t joined_from(const Program& program, std::span<const ir::ValueId> outputs, std::size_t first,
                        const JoinedKernelDef& kernel) {
  if (kernel.ops[0] == kDecoderLayers) return layers_from(program, outputs, first);
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
