// The StepWay (the class that runs each step) for rank 0 of several ranks. It sends each forward to the other ranks and
// runs rank 0's part at the same time. The other ranks collect a forward (wait for its results) when rank 0 sends the
// order kCollect (followers/followed_forwards.h).

#include <array>
#include <utility>
#include <vector>

#include "tessera/runner/steps/leading_way.h"
#include "tessera/runner/steps/step_ways.h"

namespace tessera {
namespace {

class Leader final : public LeadingWay {
 public:
  Leader(const StepContext& context, std::unique_ptr<StepWay> peer) : LeadingWay(context, std::move(peer)) {
    sent_.reserve(static_cast<std::size_t>(context.parts.model.options.max_in_flight));
  }

  int in_flight() const override { return forwards_.in_flight(); }

 private:
  struct Sent {
    std::uint64_t number = 0;  // number of the message
    Decision decision;
  };
  Result<Decision> lead(const ForwardInputs& inputs) override;
  Result<StepOutputs> collect_led() override;
  ForwardEnd end_failed(std::uint64_t number, const ForwardEnd& own);
  ForwardEnd end_collected(std::uint64_t collecting, const Status& own);

  std::vector<Sent> sent_;  // forwards in flight, oldest first
};

Result<Decision> Leader::lead(const ForwardInputs& inputs) {
  const Decision decision = TRY(dispatcher_.decide(shape_of(inputs.batch, inputs.force_eager)));
  const std::uint64_t number = TRY(ranks_.send_forward(inputs, decision));
  const ForwardEnd own = forwards_.submit(inputs, decision);
  if (own.status.ok()) {
    sent_.push_back({number, decision});
    return decision;
  }
  const ForwardEnd end = end_failed(number, own);
  TRY(dispatcher_.ended(decision, end));
  return end.status;
}

// Ends the newest forward on all ranks after submit() has failed on rank 0. If another rank's failure is the cause, the
// returned error names that rank. If no rank has failed in this forward, the error is kCancelled, and the cause is a
// failure in an earlier forward that is not collected yet.
ForwardEnd Leader::end_failed(std::uint64_t number, const ForwardEnd& own) {
  ranks_.communicator().abort(own.status.message());
  if (Status waited = ranks_.wait(number); !waited.ok()) return {std::move(waited)};
  ForwardEnd end = ranks_.settle(ranks_.first_failure(std::array{number}, own));
  if (end.status.code() == StatusCode::kDeviceLost) return end;
  Status left = ranks_.together({.kind = RankOrderKind::kDiscard}, [] { return ok_status(); });
  return left.ok() ? end : ForwardEnd{std::move(left), end.replay_failed};
}

// Collects the oldest forward on all ranks. If a launch fails on another rank after the forward's last collective
// operation, no rank waits for the failed rank, so only this function notices the failure.
Result<StepOutputs> Leader::collect_led() {
  const Sent oldest = sent_.front();
  sent_.erase(sent_.begin());
  Result<std::uint64_t> collecting = ranks_.send({.kind = RankOrderKind::kCollect});
  Result<StepOutputs> outputs = forwards_.collect();
  const ForwardEnd end = end_collected(TRY(collecting), outputs.status());
  TRY(dispatcher_.ended(oldest.decision, end));
  TRY(end.status);
  return outputs;
}

ForwardEnd Leader::end_collected(std::uint64_t collecting, const Status& own) {
  if (Status waited = ranks_.wait(collecting); !waited.ok()) return {std::move(waited)};
  ForwardEnd end = ranks_.settle(ranks_.cause(std::array{collecting}, {.status = own}));
  // Results are compared only if no rank failed. After an error the results may differ, but the difference is not the
  // cause of the error.
  if (end.status.ok()) end.status = ranks_.same_results(collecting, forwards_.digest());
  return end;
}

}  // namespace

Result<std::unique_ptr<StepWay>> make_leader(const StepContext& context) {
  if (context.parts.model.options.ranks == nullptr) return nullptr;
  return std::make_unique<Leader>(context, TRY(make_peer(context)));
}

}  // namespace tessera
