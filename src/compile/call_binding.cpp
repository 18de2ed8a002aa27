#include "tessera/compile/call_binding.h"

#include <fmt/format.h>

#include <algorithm>

namespace tessera {
namespace {

// A bound joined kernel (one kernel for several operators), and the number of instructions that it runs. If several
// joined kernels could begin at the first call, bind_joined() takes the first one that accepts the bucket. `op` is null
// if none accepts the bucket.
struct Joined {
  std::unique_ptr<BoundOp> op;
  std::size_t instructions = 0;
};
Result<Joined> bind_joined(std::span<const KernelCall> calls, const BindTarget& target) {
  const std::vector<TensorView>& operands = calls[0].views.operands;
  const std::int64_t rows = operands.empty() ? 0 : operands[0].rows();
  for (const Join& join : calls[0].instruction->joins) {
    if (rows > join.most_rows || join.instructions > calls.size()) continue;
    std::vector<BindArgs> args;
    for (const KernelCall& call : calls.first(join.instructions)) args.push_back(call.args(target));
    std::unique_ptr<BoundOp> op = TRY(join.bind(args).with_context(join.name));
    if (op != nullptr) return Joined{std::move(op), join.instructions};
  }
  return Joined{};
}

}  // namespace

std::string call_text(const Program& program, const Instruction& instruction, std::span<const std::string> names) {
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

Result<CallViews> views_of(const Program& program, const ir::Node& call, const ir::Bucket& bucket,
                           std::span<const DeviceAddress> addresses) {
  CallViews views;
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

Result<std::vector<std::unique_ptr<BoundOp>>> bind_calls(const Program& program, std::span<const KernelCall> calls,
                                                         const BindTarget& target) {
  std::vector<std::unique_ptr<BoundOp>> ops(calls.size());
  for (std::size_t i = 0; i < calls.size();) {
    const Instruction& instruction = *calls[i].instruction;
    const std::string where = call_text(program, instruction, target.names);
    Joined joined;
    if (!instruction.joins.empty()) joined = TRY(bind_joined(calls.subspan(i), target).with_context(where));
    if (joined.op != nullptr) {
      i += joined.instructions;
      ops[i - 1] = std::move(joined.op);
    } else {
      ops[i] = TRY(instruction.kernel.bind(calls[i].args(target)).with_context(where));
      ++i;
    }
  }
  return ops;
}

Status enqueue_checked(const BoundOp& op, Stream& on, const Stream& stream) {
  Status status = op.enqueue(on);
  if (status.ok() && stream.recording()) status = stream.recording_status();
  return status;
}

}  // namespace tessera
