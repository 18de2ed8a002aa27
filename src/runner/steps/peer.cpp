// The StepWay (the class that runs each step) of a rank during an order of rank 0 (RankGroup::together). All ranks then
// submit the same forwards. If a forward fails on this rank, the rank aborts the collective operations in which the
// other ranks wait. The rank cannot run the forward again without its graph, because the other ranks may have completed
// some of the graph's collectives.

#include "tessera/comm/communicator.h"
#include "tessera/runner/steps/step_ways.h"

namespace tessera {
namespace {

class Peer final : public StepWay {
 public:
  explicit Peer(const StepContext& context)
      : communicator_(*context.parts.model.options.communicator),
        dispatcher_(context.dispatcher),
        forwards_(context.forwards) {}

  Result<Decision> submit(const ForwardInputs& inputs) override {
    Result<Decision> decided = dispatcher_.decide(shape_of(inputs.batch, inputs.force_eager));
    if (!decided.ok()) return fail(decided.status());
    const ForwardEnd end = forwards_.submit(inputs, *decided);
    if (!end.status.ok()) return fail(end.status);
    return decided;
  }
  Result<StepOutputs> collect() override { return forwards_.collect(); }
  int in_flight() const override { return forwards_.in_flight(); }
  Status fail(const Status& why) override {
    communicator_.abort(why.message());
    return why;
  }

 private:
  Communicator& communicator_;
  Dispatcher& dispatcher_;
  LocalForwards& forwards_;
};

}  // namespace

Result<std::unique_ptr<StepWay>> make_peer(const StepContext& context) {
  if (context.parts.model.options.runs_alone()) return nullptr;
  return std::make_unique<Peer>(context);
}

}  // namespace tessera
