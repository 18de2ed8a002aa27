// Makes the tensors that the instructions of a compiled program use in one bucket, and binds the instructions to these
// tensors. A bucket gives a number to every symbolic size, such as the number of rows. An instruction runs on all rows
// of the bucket at once, or on each half of the rows separately (halves.h).
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/compile/program.h"

namespace tessera {

// Returns a name of the call for error messages, such as "operator linear (%y)" or "operator store (mut %out)". `names`
// has the meaning of BindTarget::names.
std::string call_text(const Program& program, const Instruction& instruction, std::span<const std::string> names);

struct CallViews {
  std::vector<TensorView> operands;
  std::vector<TensorView> results;
};
// Returns the tensors of `call` in the bucket. `addresses` has one address for each value of the program. If
// `addresses` is empty, the tensors have null addresses, which suffices for callers that need only the sizes.
Result<CallViews> views_of(const Program& program, const ir::Node& call, const ir::Bucket& bucket,
                           std::span<const DeviceAddress> addresses);

// The arguments of a kernel's bind(), with the tensors that they point to. The instruction must outlive this object.
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

// Binds consecutive instructions. Does not use a joined kernel that would also run instructions after `calls`. Returns
// one operator for each instruction. The entry of the last instruction that a joined kernel runs holds the kernel's
// operator. The entries of the kernel's earlier instructions are null.
Result<std::vector<std::unique_ptr<BoundOp>>> bind_calls(const Program& program, std::span<const KernelCall> calls,
                                                         const BindTarget& target);

// Enqueues the operator on `on`, which is `stream` or its side stream. If `stream` records, also checks the status of
// the recording, because a kernel may ignore the error of a call that is forbidden during capture.
Status enqueue_checked(const BoundOp& op, Stream& on, const Stream& stream);

}  // namespace tessera
