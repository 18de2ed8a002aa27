#include "tessera/engine/outputs/recovery.h"

namespace tessera {

Status Recovery::not_submitted(const ScheduledBatch& batch, const Status& error) {
  if (error.code() == StatusCode::kDeviceLost) return error;
  if (error.code() == StatusCode::kCancelled) {
    scheduler_.forget_results(batch);
    const bool is_explained = TRY(drop_in_flight(/*fails_oldest=*/true));
    if (!is_explained) outcomes_.fail(flights_.oldest(), internal_error(error.message()));
    scheduler_.compute_again();
    return ok_status();
  }
  outcomes_.fail(batch, error);
  if (peers_.lose_exchanges() && flights_.count() > 0) {
    TRY(drop_in_flight(/*fails_oldest=*/false));
    scheduler_.compute_again();
  }
  return ok_status();
}

Status Recovery::not_collected(const Status& error) {
  if (error.code() == StatusCode::kDeviceLost) return error;
  outcomes_.fail(flights_.oldest(), error);
  flights_.end_oldest();
  // Drops all batches in flight, because they read pages that the failed forward left undefined, directly or through
  // the prefix cache. In a pipeline, a failed forward also loses later steps, and their pages are undefined too.
  TRY(drop_in_flight(/*fails_oldest=*/false));
  scheduler_.compute_again();
  return ok_status();
}

// Waits for all forwards in flight and drops their results, so that their sequences are computed again. With
// `fails_oldest`, the oldest of the forwards that failed is treated differently: its requests end with its error.
// Returns whether requests ended in this way.
Result<bool> Recovery::drop_in_flight(bool fails_oldest) {
  bool failed = false;
  while (flights_.count() > 0) {
    const Status collected = flights_.collect().status();
    if (collected.code() == StatusCode::kDeviceLost) return collected;
    if (fails_oldest && !collected.ok() && !failed) {
      outcomes_.fail(flights_.oldest(), collected);
      failed = true;
    } else {
      scheduler_.forget_results(flights_.oldest());
    }
    flights_.end_oldest();
  }
  return failed;
}

}  // namespace tessera
