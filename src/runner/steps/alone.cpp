// The StepWay of a model's only rank. A forward whose graph cannot be launched is run again without it.

#include "tessera/runner/steps/step_ways.h"

namespace tessera {
namespace {

class Alone final : public StepWay {
 public:
  explicit Alone(const StepContext& context) : dispatcher_(context.dispatcher), forwards_(context.forwards) {}

  Result<Decision> submit(const ForwardInputs& inputs) override;
  Result<StepOutputs> collect() override { return forwards_.collect(); }
  int in_flight() const override { return forwards_.in_flight(); }

 private:
  Dispatcher& dispatcher_;
  LocalForwards& forwards_;
};

// Runs a forward again without its graph if the graph cannot be launched. The failed launch has changed nothing that
// matters: the eager run writes the cache slots again, and the ids that it reads are still there.
Result<Decision> Alone::submit(const ForwardInputs& inputs) {
  Decision decision = TRY(dispatcher_.decide(shape_of(inputs.batch, inputs.force_eager)));
  TRY(forwards_.begin(inputs));
  ForwardEnd end = forwards_.run(inputs, decision);
  TRY(dispatcher_.ended(decision, end));
  if (end.graph_failed()) {
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
