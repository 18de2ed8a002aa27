#include "tessera/compile/check_program.h"

#include <fmt/format.h>

#include <algorithm>

namespace tessera {
namespace {

class Checker {
 public:
  Checker(const Program& program, const ir::Graph& piece, const ir::OpTable& ops)
      : program_(program), piece_(piece), ops_(ops), written_(program.values.size(), false) {}

  Status check() {
    for (std::size_t i = 0; i < program_.values.size(); ++i) TRY(check_value(i));
    for (std::size_t i = 0; i < program_.instructions.size(); ++i) {
      Status status = check_instruction(program_.instructions[i]);
      if (!status.ok())
        return std::move(status).with_context(fmt::format("instruction {}, {}", i, program_.instructions[i].call.op));
    }
    for (const ir::ValueId output : piece_.outputs) TRY(check_output(output));
    return ok_status();
  }

 private:
  bool exists(ir::ValueId id) const {
    return id.value() >= 0 && static_cast<std::size_t>(id.value()) < program_.values.size();
  }
  std::size_t memory_of(ir::ValueId id) const {
    while (program_.value(id).view_of != kNoValue) id = program_.value(id).view_of;
    return id.index();
  }

  Status check_value(std::size_t i) const {
    const ProgramValue& value = program_.values[i];
    if (value.view_of != kNoValue && (value.view_of.value() < 0 || value.view_of.index() >= i))
      return internal_error(fmt::format("%{} is a view of no earlier value", value.name));
    if (value.of_piece == kNoValue) {
      if (value.kind == ir::ValueKind::kResult) return ok_status();
      return internal_error(fmt::format("{} %{} is none of the piece's", ir::value_kind_name(value.kind), value.name));
    }
    if (value.of_piece.value() < 0 || value.of_piece.index() >= piece_.values.size())
      return internal_error(fmt::format("%{} stands for value {} of a piece that has {}", value.name,
                                        value.of_piece.value(), piece_.values.size()));
    const ir::Value& original = piece_.value(value.of_piece);
    if (original.kind == value.kind && original.type == value.type) return ok_status();
    return internal_error(fmt::format("{} %{} of type {} does not match the piece's {} %{} of type {}",
                                      ir::value_kind_name(value.kind), value.name, value.type.to_string(),
                                      ir::value_kind_name(original.kind), original.name, original.type.to_string()));
  }

  Status check_instruction(const Instruction& instruction) {
    const ir::Node& call = instruction.call;
    if (!instruction.kernel.bind) return internal_error("it has no kernel");
    if (call.mutates.size() != call.operands.size())
      return internal_error(
          fmt::format("{} operands, and mutability of {}", call.operands.size(), call.mutates.size()));
    for (std::size_t i = 0; i < call.operands.size(); ++i) {
      if (!exists(call.operands[i])) return internal_error(fmt::format("operand {} is no value", i));
      const std::size_t memory = memory_of(call.operands[i]);
      if (call.mutates[i]) {
        written_[memory] = true;
      } else if (program_.values[memory].kind == ir::ValueKind::kResult && !written_[memory]) {
        return internal_error(
            fmt::format("%{} is read before anything is written to it", program_.value(call.operands[i]).name));
      }
    }
    for (std::size_t i = 0; i < call.results.size(); ++i) {
      if (!exists(call.results[i])) return internal_error(fmt::format("result {} is no value", i));
      const ProgramValue& result = program_.value(call.results[i]);
      if (result.kind != ir::ValueKind::kResult)
        return internal_error(fmt::format("{} %{} cannot be a result", ir::value_kind_name(result.kind), result.name));
      written_[memory_of(call.results[i])] = true;
    }
    return ok_status();
  }

  // Checks that the program makes `output`, which is an output of the piece. If the piece only allocates the memory of
  // `output`, no instruction needs to write it, because a later piece may write it.
  Status check_output(ir::ValueId output) const {
    const ir::Value& value = piece_.value(output);
    if (value.kind != ir::ValueKind::kResult) return ok_status();
    const ir::OpDecl* decl = TRY(ops_.get(piece_.node(value.producer).op));
    const auto made = std::find_if(program_.values.begin(), program_.values.end(),
                                   [&](const ProgramValue& v) { return v.of_piece == output; });
    if (made == program_.values.end()) return internal_error(fmt::format("output %{} is missing", value.name));
    const auto id = ir::ValueId(static_cast<std::int32_t>(made - program_.values.begin()));
    if (decl->execution == ir::Execution::kKernel && !written_[memory_of(id)])
      return internal_error(fmt::format("output %{} is never written", value.name));
    return ok_status();
  }

  const Program& program_;
  const ir::Graph& piece_;
  const ir::OpTable& ops_;
  std::vector<bool> written_;  // for each value, whether an instruction has written its memory yet
};

}  // namespace

Status check_program(const Program& program, const ir::Graph& piece, const ir::OpTable& ops) {
  return Checker(program, piece, ops).check();
}

}  // namespace tessera
