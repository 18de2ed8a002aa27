#include "tessera/compile/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tessera/compile/call_binding.h"
#include "tessera/compile/halves.h"

namespace tessera {

Instruction make_instruction(ir::Node call, const ir::OpDecl& op, const KernelDef& kernel) {
  return {.call = std::move(call),
          .kernel = {.name = std::string(kernel.name), .bind = kernel.bind, .workspace_bytes = kernel.workspace_bytes},
          .rows = op.rows};
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
  Status status = enqueue_checked(*ops_[instruction], stream, stream);
  if (!status.ok()) [[unlikely]]
    return with_instruction(std::move(status), instruction);
  return ok_status();
}

Status BoundProgram::with_instruction(Status status, std::size_t instruction) const {
  return std::move(status).with_context(call_text(*program_, program_->instructions[instruction], names_));
}

Result<std::size_t> Program::workspace_bytes(const ir::Bucket& bucket, Device& device,
                                             const ForwardContext& context) const {
  std::size_t most = 0;
  const auto need = [&](const Instruction& instruction, const CallViews& views) -> Status {
    const BindArgs args{.node = instruction.call,
                        .operands = views.operands,
                        .results = views.results,
                        .device = device,
                        .context = context};
    most =
        std::max(most, TRY(instruction.kernel.workspace_bytes(args).with_context(call_text(*this, instruction, {}))));
    return ok_status();
  };
  const auto runs_in_halves = [&](std::size_t i) {
    return std::ranges::any_of(halves,
                               [&](const Halves& run) { return i >= run.first && i < run.end && run.serve(bucket); });
  };
  for (std::size_t i = 0; i < instructions.size(); ++i) {
    const Instruction& instruction = instructions[i];
    if (!instruction.kernel.workspace_bytes) continue;
    const CallViews views = TRY(views_of(*this, instruction.call, bucket, {}));
    TRY(need(instruction, views));
    if (!runs_in_halves(i)) continue;
    for (const bool second : {false, true}) TRY(need(instruction, half_of(views, bucket[ir::Symbol::kTokens], second)));
  }
  return most;
}

Result<std::int64_t> Program::rows_of(const Instruction& instruction, const ir::Bucket& bucket) const {
  if (instruction.call.operands.empty()) return 0;
  return TRY(make_view(value(instruction.call.operands[0]).type, bucket, {})).rows();
}

Result<BoundProgram> Program::bind(const BindTarget& target) const {
  std::vector<KernelCall> calls;
  for (const Instruction& instruction : instructions) {
    CallViews views = TRY(views_of(*this, instruction.call, target.bucket, target.addresses));
    calls.push_back({&instruction, std::move(views)});
  }

  std::vector<std::unique_ptr<BoundOp>> ops(calls.size());
  std::size_t bound = 0;
  const auto bind_until = [&](std::size_t end) -> Status {
    std::vector<std::unique_ptr<BoundOp>> made =
        TRY(bind_calls(*this, std::span(calls).subspan(bound, end - bound), target));
    std::ranges::move(made, ops.begin() + static_cast<std::ptrdiff_t>(bound));
    bound = end;
    return ok_status();
  };
  for (const Halves& run : halves) {
    if (!run.serve(target.bucket)) continue;
    TRY(bind_until(run.first));
    ops[run.end - 1] = TRY(bind_halves(*this, std::span(calls).subspan(run.first, run.end - run.first), target));
    bound = run.end;
  }
  TRY(bind_until(calls.size()));
  return BoundProgram(*this, target.names, std::move(ops));
}

}  // namespace tessera
