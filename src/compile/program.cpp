#include "tessera/compile/program.h"

#include <fmt/format.h>

#include <algorithm>

namespace tessera {
namespace {

// "operator linear (%y)", "operator store (mut %out)"
std::string describe(const Program& program, const Instruction& instruction, std::span<const std::string> names) {
  const ir::Node& call = instruction.call;
  const auto name = [&](ir::ValueId id) -> const std::string& {
    return names.empty() ? program.value(id).name : names[id.index()];
  };
  if (!call.results.empty()) return fmt::format("operator {} (%{})", call.op, name(call.results[0]));
  for (std::size_t i = 0; i < call.operands.size(); ++i) {
    if (call.mutates[i]) return fmt::format("operator {} (mut %{})", call.op, name(call.operands[i]));
  }
  return fmt::format("operator {}", call.op);
}

struct Views {
  std::vector<TensorView> operands;
  std::vector<TensorView> results;
};

Result<Views> views_of(const Program& program, const ir::Node& call, const ir::Bucket& bucket,
                       std::span<const DeviceAddress> addresses) {
  Views views;
  const auto add = [&](std::vector<TensorView>& out, ir::ValueId id) -> Status {
    const DeviceAddress address = addresses.empty() ? DeviceAddress{} : addresses[id.index()];
    const ProgramValue& value = program.value(id);
    out.push_back(TRY(make_view(value.type, bucket, address).with_context("%" + value.name)));
    out.back().is_weight = value.kind == ir::ValueKind::kWeight;
    return ok_status();
  };
  for (const ir::ValueId id : call.operands) TRY(add(views.operands, id));
  for (const ir::ValueId id : call.results) TRY(add(views.results, id));
  return views;
}

}  // namespace

Instruction make_instruction(ir::Node call, const KernelDef& kernel) {
  Instruction instruction{.call = std::move(call), .kernel = {.name = std::string(kernel.name), .bind = kernel.bind}};
  if (kernel.workspace_bytes != nullptr) instruction.kernel.workspace_bytes = kernel.workspace_bytes;
  return instruction;
}

Result<TensorView> make_view(const ir::Type& type, const ir::Bucket& bucket, DeviceAddress data) {
  const std::vector<std::int64_t> dims = TRY(ir::evaluate(type.shape, bucket));
  if (dims.size() > kMaxRank)
    return unimplemented(fmt::format("type {} has more than {} dimensions", type.to_string(), kMaxRank));
  TensorView view{.data = data, .dtype = type.dtype, .rank = static_cast<std::int32_t>(dims.size()), .dims = {}};
  std::copy(dims.begin(), dims.end(), view.dims.begin());
  return view;
}

Status BoundProgram::enqueue(Stream& stream) const {
  for (std::size_t i = 0; i < ops_.size(); ++i) TRY(enqueue_instruction(i, stream));
  return ok_status();
}

Status BoundProgram::enqueue_instruction(std::size_t instruction, Stream& stream) const {
  if (ops_[instruction] == nullptr) return ok_status();
  Status status = ops_[instruction]->enqueue(stream);
  // A kernel that ignores the error of a call that capture forbids is found by the recording's own status.
  if (status.ok() && stream.recording()) status = stream.recording_status();
  if (!status.ok()) [[unlikely]]
    return with_instruction(std::move(status), instruction);
  return ok_status();
}

Status BoundProgram::with_instruction(Status status, std::size_t instruction) const {
  return std::move(status).with_context(describe(*program_, program_->instructions[instruction], names_));
}

Result<std::size_t> Program::workspace_bytes(const ir::Bucket& bucket, Device& device,
                                             const ForwardContext& context) const {
  std::size_t most = 0;
  for (const Instruction& instruction : instructions) {
    if (!instruction.kernel.workspace_bytes) continue;
    const Views views = TRY(views_of(*this, instruction.call, bucket, {}));
    const BindArgs args{.node = instruction.call,
                        .operands = views.operands,
                        .results = views.results,
                        .device = device,
                        .context = context};
    most = std::max(most, TRY(instruction.kernel.workspace_bytes(args).with_context(describe(*this, instruction, {}))));
  }
  return most;
}

Result<std::int64_t> Program::rows_of(const Instruction& instruction, const ir::Bucket& bucket) const {
  if (instruction.call.operands.empty()) return 0;
  return TRY(make_view(value(instruction.call.operands[0]).type, bucket, {})).rows();
}

namespace {

// A kernel's arguments, with the views that they point to.
struct Call {
  const Instruction* instruction;
  Views views;

  BindArgs args(const BindTarget& target) const {
    return {.node = instruction->call,
            .operands = views.operands,
            .results = views.results,
            .workspace = target.workspace,
            .device = target.device,
            .context = target.context};
  }
};

// The first of the first call's joins that serves the bucket, and how many instructions it runs; null where none does.
struct Joined {
  std::unique_ptr<BoundOp> op;
  std::size_t instructions = 0;
};
Result<Joined> bind_joined(std::span<const Call> calls, const BindTarget& target) {
  const std::vector<TensorView>& operands = calls[0].views.operands;
  const std::int64_t rows = operands.empty() ? 0 : operands[0].rows();
  for (const Join& join : calls[0].instruction->joins) {
    if (rows > join.most_rows) continue;
    std::vector<BindArgs> args;
    for (const Call& call : calls.first(join.instructions)) args.push_back(call.args(target));
    std::unique_ptr<BoundOp> op = TRY(join.bind(args).with_context(join.name));
    if (op != nullptr) return Joined{std::move(op), join.instructions};
  }
  return Joined{};
}

}  // namespace

Result<BoundProgram> Program::bind(const BindTarget& target) const {
  std::vector<Call> calls;
  for (const Instruction& instruction : instructions)
    calls.push_back({&instruction, TRY(views_of(*this, instruction.call, target.bucket, target.addresses))});

  std::vector<std::unique_ptr<BoundOp>> ops(instructions.size());
  for (std::size_t i = 0; i < instructions.size();) {
    const Instruction& instruction = instructions[i];
    const std::string where = describe(*this, instruction, target.names);
    Joined joined;
    if (!instruction.joins.empty()) {
      joined = TRY(bind_joined(std::span(calls).subspan(i), target).with_context(where));
    }
    if (joined.op != nullptr) {
      i += joined.instructions;
      ops[i - 1] = std::move(joined.op);
    } else {
      ops[i] = TRY(instruction.kernel.bind(calls[i].args(target)).with_context(where));
      ++i;
    }
  }
  return BoundProgram(*this, target.names, std::move(ops));
}

}  // namespace tessera
