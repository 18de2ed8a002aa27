// The base of the StepWay classes that run the steps of rank 0. Rank 0 leads the other ranks, except while all ranks
// carry out an order (RankGroup::together). During an order every rank submits the same forwards, so rank 0 acts as a
// peer (peer.cpp).
#pragma once

#include <memory>
#include <utility>

#include "tessera/runner/ranks/rank_group.h"
#include "tessera/runner/steps/step_way.h"

namespace tessera {

class LeadingWay : public StepWay {
 public:
  Result<Decision> submit(const ForwardInputs& inputs) final {
    return ranks_.leads() ? lead(inputs) : peer_->submit(inputs);
  }
  Result<StepOutputs> collect() final { return ranks_.leads() ? collect_led() : peer_->collect(); }
  Status fail(const Status& why) final { return ranks_.leads() ? why : peer_->fail(why); }

 protected:
  // `peer` runs the steps during orders.
  LeadingWay(const StepContext& context, std::unique_ptr<StepWay> peer)
      : ranks_(*context.parts.model.options.ranks),
        dispatcher_(context.dispatcher),
        forwards_(context.forwards),
        peer_(std::move(peer)) {}

  // Do the work of submit() and collect() outside of orders, when rank 0 leads.
  virtual Result<Decision> lead(const ForwardInputs& inputs) = 0;
  virtual Result<StepOutputs> collect_led() = 0;

  RankGroup& ranks_;
  Dispatcher& dispatcher_;
  LocalForwards& forwards_;

 private:
  const std::unique_ptr<StepWay> peer_;
};

}  // namespace tessera
