// The interface for running one step on the ranks of a model. Each implementation is for one arrangement of ranks.
// ModelRunner has one StepWay, which is chosen once (step_ways.h).
//
// The rest of ModelRunner knows little of ranks. It asks RunnerOptions in which arrangement it runs (runs_alone(),
// has_stages(), decides()). Work besides steps goes to all ranks through RunnerParts (together(), write_adapter(),
// available_bytes()), and the calls of a DraftStep go through SentDrafts. Only soak() looks for followers itself,
// because it must capture the same sizes on all ranks before each rank compares batches of its own.
//
// A StepWay decides how each forward runs (Dispatcher), runs this rank's part of it (LocalForwards), and tells other
// ranks what to do (RankGroup, Communicator).
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

  // Must be called if this rank cannot run a step. The other ranks may be waiting for this rank's part of the step.
  // Returns the error that the caller should return in place of `why`.
  virtual Status fail(const Status& why) { return why; }
  // Takes part in the other ranks' forward although this rank has no tokens (ModelRunner::run_idle_forward).
  virtual Status run_idle_forward() { return internal_error("a rank that computes all tokens makes no idle forward"); }
  // Waits for all idle forwards.
  virtual Status end_idle_forwards() { return ok_status(); }
};

}  // namespace tessera
