// The StepWay (the class that runs each step) for rank 0 of a pipeline whose device is the CPU. On such a device,
// enqueueing a forward runs it at once. Rank 0 belongs to the last stage. If it ran its part in submit(), it would
// block until the earlier stages are done, and could not send them the next forward. submit() therefore only sends the
// forward. Rank 0 runs its own part when the caller collects the forward (waits for its results), or before an order to
// all ranks. The other ranks answer a forward's message after they have run and collected the forward. On a device that
// runs in parallel with the host, leader.cpp suffices, because enqueueing does not block there.

#include <algorithm>
#include <array>
#include <deque>
#include <utility>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/runner/ranks/deferred_forwards.h"
#include "tessera/runner/steps/leading_way.h"
#include "tessera/runner/steps/step_ways.h"

namespace tessera {
namespace {

class HostPipeline final : public LeadingWay {
 public:
  HostPipeline(const StepContext& context, std::unique_ptr<StepWay> peer) : LeadingWay(context, std::move(peer)) {
    // The other ranks of this stage carry out an order after the forwards that were sent before it. These forwards also
    // need rank 0, so rank 0 must first run its own part of each.
    ranks_.before_orders([this] { run_all(); });
  }
  ~HostPipeline() override { ranks_.before_orders({}); }

  int in_flight() const override { return forwards_.in_flight() + deferred_.size() + static_cast<int>(ran_.size()); }

 private:
  Result<Decision> lead(const ForwardInputs& inputs) override;
  Result<StepOutputs> collect_led() override;
  void run_all();
  Result<StepOutputs> run_oldest();
  ForwardEnd end_oldest(const ForwardEnd& own);

  std::vector<std::uint64_t> sent_;  // numbers of messages whose forwards rank 0 has not run, oldest first
  DeferredForwards deferred_;
  std::deque<Result<StepOutputs>> ran_;  // results of forwards that ran before they were collected
  bool runs_ = false;
};

Result<Decision> HostPipeline::lead(const ForwardInputs& inputs) {
  const Decision decision = TRY(dispatcher_.decide(shape_of(inputs.batch, inputs.force_eager)));
  sent_.push_back(TRY(ranks_.send_forward(inputs, decision)));
  deferred_.push(ranks_.last_forward(), inputs);
  return decision;
}

Result<StepOutputs> HostPipeline::collect_led() {
  if (ran_.empty()) return run_oldest();
  Result<StepOutputs> oldest = std::move(ran_.front());
  ran_.pop_front();
  return oldest;
}

void HostPipeline::run_all() {
  while (!runs_ && deferred_.size() > 0) ran_.push_back(run_oldest());
}

// Runs the oldest forward. If it fails on any rank, all forwards in flight fail.
Result<StepOutputs> HostPipeline::run_oldest() {
  runs_ = true;  // if an order, for example kDrop, is sent meanwhile, run_all() does nothing
  Result<StepOutputs> outputs = [&]() -> Result<StepOutputs> {
    const ForwardInputs inputs = TRY(deferred_.take());
    const Decision decision = deferred_.decision();
    ForwardEnd own = forwards_.submit(inputs, decision);
    Result<StepOutputs> made = own.status.ok() ? forwards_.collect() : own.status;
    if (!made.ok()) own.status = made.status();
    const ForwardEnd end = end_oldest(own);
    if (!end.status.ok()) deferred_.fail(end.status);
    TRY(dispatcher_.ended(decision, end));
    TRY(end.status);
    return made;
  }();
  runs_ = false;
  return outputs;
}

// Ends the oldest forward on all ranks, after rank 0 has run it. After an error no forward is in flight on any rank.
ForwardEnd HostPipeline::end_oldest(const ForwardEnd& own) {
  ForwardEnd end;
  if (own.status.ok()) {
    const std::uint64_t oldest = sent_.front();
    if (Status waited = ranks_.wait(oldest); !waited.ok()) return {std::move(waited)};
    end = ranks_.cause(std::array{oldest}, own);
    if (end.status.ok()) end.status = ranks_.same_results(oldest, forwards_.digest());
    if (end.status.ok()) {
      sent_.erase(sent_.begin());
      return end;
    }
  }
  // settle() restarts the communicator. The restart empties the links between stages. The data of later forwards is
  // then lost, so all forwards in flight end here.
  ranks_.communicator().abort(own.status.ok() ? end.status.message() : own.status.message());
  if (Status waited = ranks_.wait(sent_.back()); !waited.ok()) return {std::move(waited)};
  if (end.status.ok()) end = ranks_.cause(sent_, own);
  sent_.clear();
  return ranks_.settle(std::move(end));
}

}  // namespace

bool collects_as_it_runs(const RunnerParts& parts) {
  return parts.model.options.has_stages() && parts.model.device.properties().on_host;
}

Result<std::unique_ptr<StepWay>> make_host_pipeline(const StepContext& context) {
  if (context.parts.model.options.ranks == nullptr || !collects_as_it_runs(context.parts)) return nullptr;
  return std::make_unique<HostPipeline>(context, TRY(make_peer(context)));
}

}  // namespace tessera
