// Measures in idle moments what forwards cost, for dispatch: replays of every captured size and eager prefills of every
// fourth size, smallest first.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <set>
#include <utility>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/runner/dispatch/dispatcher.h"
#include "tessera/runner/launcher.h"
#include "tessera/runner/runner_parts.h"

namespace tessera {

class CostMeasurement {
 public:
  // All arguments must outlive this object.
  CostMeasurement(RunnerParts& parts, Launcher& launcher, Dispatcher& dispatcher)
      : parts_(parts), launcher_(launcher), dispatcher_(dispatcher) {}

  // Measures one forward. After a forward of more than 30 ms, larger sizes of that runner are skipped. Returns false if
  // nothing is left to measure.
  Result<bool> measure_next();

 private:
  void collect();
  Result<double> measure(RunnerKind kind, std::int64_t size);
  // Runs the staged batch on all ranks and returns the time in milliseconds.
  Result<double> run_eagerly(GraphRunner& runner, std::int64_t size);
  Result<double> replay(GraphRunner& runner, std::int64_t size);
  Result<double> timed(const RankOrder& order, const std::function<Status()>& run);
  Status forget(GraphRunner& runner, std::int64_t size);

  RunnerParts& parts_;
  Launcher& launcher_;
  Dispatcher& dispatcher_;
  std::vector<std::pair<RunnerKind, std::int64_t>> to_measure_;  // taken from the back
  // Sizes that this runner has measured. A size that an earlier run measured is measured again, since that measurement
  // may have been disturbed.
  std::set<std::pair<RunnerKind, std::int64_t>> measured_;
  // [RunnerKind]: sizes from this one on take too long to be measured.
  std::array<std::int64_t, 3> measured_below_ = {INT64_MAX, INT64_MAX, INT64_MAX};
};

}  // namespace tessera
