// Records what has become of requests: the events of the current step, and the completions of requests that have ended.
#pragma once

#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/engine/request.h"
#include "tessera/engine/schedule/flights.h"
#include "tessera/engine/schedule/scheduler.h"

namespace tessera {

class Outcomes {
 public:
  // Makes an empty record. Both arguments must outlive it, because it removes ended requests from the scheduler and
  // from the forwards in flight.
  Outcomes(Scheduler& scheduler, Flights& flights) : scheduler_(scheduler), flights_(flights) {}

  void begin_step() { events_.clear(); }
  // Returns the events since begin_step().
  std::span<RequestEvent> events() { return events_; }
  // Adds the event, and ends its request if the event says so.
  void report(RequestEvent event);
  // Ends a request without an event; ignores an unknown id.
  void end(RequestId id, FinishReason reason);
  // Ends the requests whose deadline has passed.
  void end_expired();
  // Ends the requests of a forward that failed.
  void fail(const ScheduledBatch& batch, const Status& error);

  // Returns an ended request's completion, once.
  std::optional<Completion> take(RequestId id);

 private:
  Scheduler& scheduler_;
  Flights& flights_;
  std::vector<RequestEvent> events_;
  std::vector<RequestId> expired_;
  std::unordered_map<RequestId, Completion> completions_;  // completions that were not taken yet
};

}  // namespace tessera
