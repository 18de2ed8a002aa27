// Measures the costs of forwards, so that dispatch can compare them. The measurements run in moments without requests.
// A replay is measured for every captured size. In addition, an eager prefill is measured for each size that
// eager_samples() returns. The smallest size comes first.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <set>
#include <utility>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/runner/capture/dispatcher.h"
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
  // run_eagerly() and replay() run the staged batch on all ranks and return the time in milliseconds.
  Result<double> run_eagerly(GraphRunner& runner, std::int64_t size);
  Result<double> replay(GraphRunner& runner, std::int64_t size);
  Result<double> timed(const RankOrder& order, const std::function<Status()>& run);
  Status forget(GraphRunner& runner, std::int64_t size);

  RunnerParts& parts_;
  Launcher& launcher_;
  Dispatcher& dispatcher_;
  std::vector<std::pair<RunnerKind, std::int64_t>> to_measure_;  // the next one to measure is last
  // The sizes that this object has measured. A size that was measured only in an earlier run of the program is measured
  // again, because the earlier measurement may have been disturbed.
  std::set<std::pair<RunnerKind, std::int64_t>> measured_;
  // For each RunnerKind, only sizes below this one are measured. Larger ones would take too long.
  std::array<std::int64_t, 3> measured_below_ = {INT64_MAX, INT64_MAX, INT64_MAX};
};

}  // namespace tessera
