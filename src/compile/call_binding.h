// Gives instructions the tensors of a bucket: the first step of binding a program, whole or in halves.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/compile/program.h"

namespace tessera {

// Returns the call's name for errors: "operator linear (%y)" or "operator store (mut %out)". `names` as in BindTarget.
std::string call_text(const Program& program, const Instruction& instruction, std::span<const std::string> names);

struct CallViews {
  std::vector<TensorView> operands;
  std::vector<TensorView> results;
};
// Returns the instruction's tensors. `addresses` is [values]; empty: all addresses are null, for callers that only need
// sizes.
Result<CallViews> views_of(const Program& program, const ir::Node& call, const ir::Bucket& bucket,
                           std::span<const DeviceAddress> addresses);

// A kernel's arguments, with the views that they point to. The instruction must outlive it.
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

// Binds neighbouring instructions, whose joins must end within them. Returns one operator for each call; null if a
// joined kernel, which is bound at a later call, runs this call.
Result<std::vector<std::unique_ptr<BoundOp>>> bind_calls(const Program& program, std::span<const KernelCall> calls,
                                                         const BindTarget& target);

// Enqueues the operator on `on`, which is `stream` or its side stream. A kernel may ignore the error of a call that
// capture forbids; the recording's own status then shows it.
Status enqueue_checked(const BoundOp& op, Stream& on, const Stream& stream);

}  // namespace tessera
