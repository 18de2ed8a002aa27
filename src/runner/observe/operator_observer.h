// Lets code read the values of a forward that runs operator by operator. Forwards without an observer have no extra
// cost.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tessera/base/status.h"
#include "tessera/runner/graphs/graph_runner.h"

namespace tessera {

class RunnerParts;

// An operator that is about to run. All operators before it are enqueued.
struct ObservedCall {
  const Executable& executable;
  const ir::Bucket& bucket;
  std::size_t part;
  std::size_t instruction;
  std::int64_t padding;  // number of padding rows, which are the forward's last rows

  const CompiledPart& of_part() const { return executable.parts(bucket)[part]; }
  const ir::Node& node() const { return of_part().program->instructions[instruction].call; }
  Result<TensorView> operand(std::size_t i) const { return executable.value(bucket, part, node().operands[i]); }
  // Returns the name of the operand's value. Weights of different layers have different names.
  const std::string& operand_name(std::size_t i) const { return of_part().value_names[node().operands[i].index()]; }
};

class OperatorObserver {
 public:
  virtual ~OperatorObserver() = default;
  // Called before the operator is enqueued. May read operands by Stream::download() on the forward's stream. An error
  // ends the forward.
  virtual Status before(const ObservedCall& call) = 0;
};

// Enqueues a forward operator by operator, and shows each operator to `observer`. `size` must be bound
// (Executable::bind). Operators that a joined kernel would run (JoinedKernelDef, ops/contract/op.h) run by their own
// kernels, so that all operands are in memory.
Status run_observed(RunnerParts& parts, const GraphRunner& runner, std::int64_t size, std::int64_t real_rows,
                    OperatorObserver& observer);

}  // namespace tessera
