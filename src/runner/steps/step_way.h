// The way in which the ranks of one model take a step together. ModelRunner has one StepWay, chosen once (step_ways.h).
// No other part of ModelRunner deals with ranks.
//
// A StepWay decides each forward (Dispatcher), runs this rank's part of it (LocalForwards), and tells other ranks what
// to do (RankGroup, Communicator).
//
// Threads: the runner's thread.
#pragma once

#include <memory>

#include "tessera/base/status.h"
#include "tessera/runner/capture/dispatcher.h"
#include "tessera/runner/forward_inputs.h"
#include "tessera/runner/runner_parts.h"
#include "tessera/runner/steps/local_forwards.h"

namespace tessera {

// The objects that a StepWay works with. All of them must outlive the StepWay.
struct StepContext {
  RunnerParts& parts;
  Dispatcher& dispatcher;
  LocalForwards& forwards;
};

class StepWay {
 public:
  virtual ~StepWay() = default;

  // Decides how a forward runs, and enqueues it. After an error the forward is in flight on no rank. Precondition: the
  // inputs were checked, and fewer than max_in_flight forwards are in flight.
  virtual Result<Decision> submit(const ForwardInputs& inputs) = 0;
  // Waits for the oldest forward in flight. The forward is no longer in flight afterwards, even after an error.
  // Precondition: a forward is in flight.
  virtual Result<StepOutputs> collect() = 0;
  // Returns the number of forwards that were submitted and not yet collected.
  virtual int in_flight() const = 0;

  // Called if this rank cannot make a step for which other ranks may wait. Returns the error for the caller.
  virtual Status fail(const Status& why) { return why; }
  // Makes an idle forward: takes part in the other ranks' forward without tokens of its own
  // (ModelRunner::run_idle_forward).
  virtual Status run_idle_forward() { return internal_error("a rank that computes all tokens makes no idle forward"); }
  // Waits for all idle forwards.
  virtual Status end_idle_forwards() { return ok_status(); }
};

}  // namespace tessera
