// Measuring what forwards cost, for dispatch, when there is nothing else to do: replays of every captured size, and
// eager prefills of every fourth, smallest first.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <set>
#include <utility>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/runner/dispatch/dispatcher.h"
#include "tessera/runner/runner_parts.h"

namespace tessera {

class CostMeasurement {
 public:
  // What it works on outlives this.
  CostMeasurement(RunnerParts& parts, Dispatcher& dispatcher) : parts_(parts), dispatcher_(dispatcher) {}

  // Measures one forward; no larger ones after one of more than 30 ms. False where none is left.
  Result<bool> measure_next();

 private:
  void collect();
  Result<double> measure(RunnerKind kind, std::int64_t size);
  // On all ranks, of what is staged: milliseconds.
  Result<double> run_eagerly(GraphRunner& runner, std::int64_t size);
  Result<double> replay(GraphRunner& runner, std::int64_t size);
  Result<double> timed(const RankOrder& order, const std::function<Status()>& run);
  Status forget(GraphRunner& runner, std::int64_t size);

  RunnerParts& parts_;
  Dispatcher& dispatcher_;
  std::vector<std::pair<RunnerKind, std::int64_t>> to_measure_;  // the last first
  // By this runner; what an earlier run measured is measured once more, in case that was disturbed.
  std::set<std::pair<RunnerKind, std::int64_t>> measured_;
  // [RunnerKind]: larger sizes take too long to be measured.
  std::array<std::int64_t, 3> measured_below_ = {INT64_MAX, INT64_MAX, INT64_MAX};
};

}  // namespace tessera
