// Instructions with the tensors of a bucket: what binding a program, whole or in halves, begins with.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/compile/program.h"

namespace tessera {

// "operator linear (%y)", "operator store (mut %out)"; `names` as in BindTarget.
std::string call_text(const Program& program, const Instruction& instruction, std::span<const std::string> names);

struct CallViews {
  std::vector<TensorView> operands;
  std::vector<TensorView> results;
};
// `addresses` [values]; empty: null, where only sizes are asked for.
Result<CallViews> views_of(const Program& program, const ir::Node& call, const ir::Bucket& bucket,
                           std::span<const DeviceAddress> addresses);

// A kernel's arguments, with the views that they point to. `instruction` outlives it.
struct KernelCall {
  const Instruction* instruction;
  CallViews views;

  BindArgs args(const BindTarget& target) const {
    return {.node = instruction->call,
            .operands = views.operands,
            .results = views.results,
            .workspace = target.workspace,
            .device = target.device,
            .context = target.context};
  }
};

// Neighbouring instructions, none of whose joins is bound beyond the last one. [calls]; null: a joined kernel runs it,
// with a call after it.
Result<std::vector<std::unique_ptr<BoundOp>>> bind_calls(const Program& program, std::span<const KernelCall> calls,
                                                         const BindTarget& target);

// Enqueues the operator on `on`, which is `stream` or its side. A kernel that ignores the error of a call that capture
// forbids is found by the recording's own status.
Status enqueue_checked(const BoundOp& op, Stream& on, const Stream& stream);

}  // namespace tessera
