// The StepWay (the class that runs each step) for a model with a single rank. If a graph cannot be launched, it runs
// the forward again without graphs.

#include <algorithm>

#include "tessera/runner/runner_parts.h"
#include "tessera/runner/steps/step_ways.h"

namespace tessera {
namespace {

class Alone final : public StepWay {
 public:
  explicit Alone(const StepContext& context)
      : parts_(context.parts), dispatcher_(context.dispatcher), forwards_(context.forwards) {}

  Result<Decision> submit(const ForwardInputs& inputs) override;
  Result<StepOutputs> collect() override { return forwards_.collect(); }
  int in_flight() const override { return forwards_.in_flight(); }

 private:
  const RunnerParts& parts_;
  Dispatcher& dispatcher_;
  LocalForwards& forwards_;
};

// Returns whether a batch may run again after some of its graphs ran. Keys and values do no harm, because the second
// run writes the same ones. But the first run has already changed recurrent states, and the second run would continue
// from the changed states. If the model has such states, only a batch whose requests have no cached tokens may run
// again, because the states of these requests start from zero.
bool may_run_again(const RunnerParts& parts, const ForwardBatch& batch) {
  const auto& groups = parts.model.graphs.body.cache_groups;
  if (std::ranges::find(groups, ir::CacheGroup::Kind::kState, &ir::CacheGroup::kind) == groups.end()) return true;
  return batch.kv_lens == batch.query_lens;
}

// Runs a forward. If one of its graphs cannot be launched and may_run_again() allows a second run, runs the forward
// again eagerly.
Result<Decision> Alone::submit(const ForwardInputs& inputs) {
  Decision decision = TRY(dispatcher_.decide(shape_of(inputs.batch, inputs.force_eager)));
  TRY(forwards_.begin(inputs));
  ForwardEnd end = forwards_.run(inputs, decision);
  TRY(dispatcher_.ended(decision, end));
  if (end.graph_failed() && may_run_again(parts_, inputs.batch)) {
    decision = {RunnerKind::kEager,    inputs.batch.num_tokens(), 0,
                Reason::kReplayFailed, GraphForm::kPieces,        decision.adapters};
    end = forwards_.run(inputs, decision);
  }
  TRY(end.status);
  TRY(forwards_.finish(inputs, decision));
  return decision;
}

}  // namespace

Result<std::unique_ptr<StepWay>> make_alone(const StepContext& context) { return std::make_unique<Alone>(context); }

}  // namespace tessera
