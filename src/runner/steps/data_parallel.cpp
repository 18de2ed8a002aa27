// The StepWay (the class that runs each step) for data-parallel ranks (ModelGraphs::dp_size), each of which has its own
// tokens. All ranks take part in every forward: they call submit() or, on a rank without tokens, run_idle_forward().
// Each call blocks until all ranks have called, and then the ranks agree on one graph. A failed forward ends the group,
// because the other ranks may wait forever for data from the failed rank, or may have received wrong data from it.

#include <utility>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/runner/steps/agreed_shape.h"
#include "tessera/runner/steps/step_ways.h"

namespace tessera {
namespace {

class DataParallel final : public StepWay {
 public:
  DataParallel(const StepContext& context, std::vector<std::unique_ptr<Event>> passed)
      : stream_(context.parts.stream()),
        group_(*context.parts.model.options.communicator),
        dispatcher_(context.dispatcher),
        forwards_(context.forwards),
        passed_(std::move(passed)) {}

  Result<Decision> submit(const ForwardInputs& inputs) override;
  Result<StepOutputs> collect() override;
  int in_flight() const override { return forwards_.in_flight(); }
  Status fail(const Status& why) override {
    group_.abort(why.message());
    return device_lost(why.message());
  }
  Status run_idle_forward() override { return or_end_group(make_idle_forward()); }
  Status end_idle_forwards() override { return or_end_group(stream_.synchronize()); }

 private:
  Result<Decision> make_forward(const ForwardInputs& inputs);
  Status make_idle_forward();
  Status or_end_group(const Status& made) { return made.ok() ? made : fail(made); }

  Stream& stream_;
  Communicator& group_;
  Dispatcher& dispatcher_;
  LocalForwards& forwards_;
  std::vector<std::unique_ptr<Event>> passed_;  // [max_in_flight]: recorded after each idle forward
  std::size_t next_passed_ = 0;
};

Result<Decision> DataParallel::submit(const ForwardInputs& inputs) {
  Result<Decision> made = make_forward(inputs);
  if (!made.ok()) return fail(made.status());
  return made;
}

Result<Decision> DataParallel::make_forward(const ForwardInputs& inputs) {
  const BatchShape own = shape_of(inputs.batch, inputs.force_eager);
  const BatchShape agreed = TRY(agree_on_shape(group_, own));
  Decision decision = TRY(dispatcher_.decide(agreed));
  decision.padding += agreed.tokens - own.tokens;
  TRY(forwards_.submit(inputs, decision).status);
  return decision;
}

// Collects the oldest forward and checks the group's status, because the kernels of an aborted group stop waiting and
// return incomplete data.
Result<StepOutputs> DataParallel::collect() {
  Result<StepOutputs> outputs = forwards_.collect();
  if (!outputs.ok()) return fail(outputs.status());
  const Status group = group_.status();
  if (!group.ok()) return device_lost(group.message());
  return outputs;
}

Status DataParallel::make_idle_forward() {
  Event& passed = *passed_[next_passed_];
  next_passed_ = (next_passed_ + 1) % passed_.size();
  TRY(forwards_.wait(passed));  // waits for the oldest idle forward, because its event is reused
  TRY(forwards_.step().run_idle_forward(TRY(dispatcher_.decide(TRY(agree_on_shape(group_, {}))))));
  return stream_.record(passed);
}

}  // namespace

Result<std::unique_ptr<StepWay>> make_data_parallel(const StepContext& context) {
  const RunnerParts& parts = context.parts;
  if (parts.model.graphs.dp_size == 1) return nullptr;
  std::vector<std::unique_ptr<Event>> passed(static_cast<std::size_t>(parts.model.options.max_in_flight));
  for (std::unique_ptr<Event>& event : passed) event = TRY(parts.model.device.create_event());
  return std::make_unique<DataParallel>(context, std::move(passed));
}

}  // namespace tessera
