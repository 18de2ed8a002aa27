#include "tessera/runner/observe/operator_observer.h"

#include <memory>
#include <vector>

#include "tessera/runner/runner_parts.h"

namespace tessera {
namespace {

// Returns whether a joined kernel runs the operator together with its neighbours.
Result<bool> is_joined(const ObservedCall& call) {
  if (TRY(call.executable.runs_later(call.bucket, call.part, call.instruction))) return true;
  if (call.instruction == 0) return false;
  return call.executable.runs_later(call.bucket, call.part, call.instruction - 1);
}

// Runs the operator by its own kernel, on the forward's memory.
Status run_alone(RunnerParts& parts, const ObservedCall& call, const ForwardContext& context) {
  const Program& program = *call.of_part().program;
  const auto views_of = [&](const std::vector<ir::ValueId>& values) -> Result<std::vector<TensorView>> {
    std::vector<TensorView> views;
    for (const ir::ValueId id : values) {
      views.push_back(TRY(call.executable.value(call.bucket, call.part, id)));
      views.back().is_weight = program.value(id).kind == ir::ValueKind::kWeight;
    }
    return views;
  };
  const std::vector<TensorView> operands = TRY(views_of(call.node().operands));
  const std::vector<TensorView> results = TRY(views_of(call.node().results));
  const std::unique_ptr<BoundOp> op =
      TRY(program.instructions[call.instruction].kernel.bind({.node = call.node(),
                                                              .operands = operands,
                                                              .results = results,
                                                              .workspace = parts.workspace().base(),
                                                              .device = parts.model.device,
                                                              .context = context}));
  TRY(op->enqueue(parts.stream()));
  return parts.stream().synchronize();  // the bound operator lives until its work has ended
}

}  // namespace

Status run_observed(RunnerParts& parts, const GraphRunner& runner, std::int64_t size, std::int64_t real_rows,
                    OperatorObserver& observer) {
  const Executable& executable = runner.executable();
  const ir::Bucket bucket = runner.bucket(size);
  const ExecutionEnvironment environment = parts.environment(runner.spec().batches);
  for (std::size_t p = 0; p < executable.parts(bucket).size(); ++p) {
    for (std::size_t i = 0; i < executable.parts(bucket)[p].program->instructions.size(); ++i) {
      const ObservedCall call{executable, bucket, p, i, size - real_rows};
      TRY(observer.before(call));
      TRY(TRY(is_joined(call)) ? run_alone(parts, call, environment.context)
                               : executable.run_instruction(bucket, p, i));
    }
  }
  return ok_status();
}

}  // namespace tessera
