// Recovers from forwards that fail. A failure ends only the requests of the forward that failed. Later forwards in
// flight are computed again.
#pragma once

#include "tessera/base/status.h"
#include "tessera/engine/outputs/outcomes.h"
#include "tessera/engine/ranks/peers.h"
#include "tessera/engine/schedule/flights.h"
#include "tessera/engine/schedule/scheduler.h"

namespace tessera {

// All functions return kDeviceLost if no further forward can succeed.
class Recovery {
 public:
  // All arguments must outlive this object.
  Recovery(const Peers& peers, Scheduler& scheduler, Flights& flights, Outcomes& outcomes)
      : peers_(peers), scheduler_(scheduler), flights_(flights), outcomes_(outcomes) {}

  // Handles a batch that could not be submitted. If the only cause is that another rank failed in an earlier forward,
  // the batch is computed again. The caller must collect the forwards still in flight before it schedules anything.
  Status not_submitted(const ScheduledBatch& batch, const Status& error);
  // Handles an error that occurred when the results of the oldest forward were collected.
  Status not_collected(const Status& error);

 private:
  Result<bool> drop_in_flight(bool fails_oldest);

  const Peers& peers_;
  Scheduler& scheduler_;
  Flights& flights_;
  Outcomes& outcomes_;
};

}  // namespace tessera
