// Measures whether a prefill size runs faster as one full graph, which includes attention, than as graphs of pieces
// with attention between them. The measurements run in moments without requests.
//
// A full graph has no gaps between pieces, and it runs attention on a grid that is fixed for the size. The full graph
// is kept if both forms give the same bits and the full graph is faster in nearly all pairs of replays. Each pair
// replays both forms. Measurement starts with the smallest size. The cost of a cut (the border between two pieces) does
// not grow with the size, so after two consecutive sizes without a gain all larger sizes are skipped. The measurement
// also ends at a size whose replay takes so long that the time between pieces is a negligible part of it.
//
// Full graphs are measured one after another, so at most one unmeasured full graph exists at a time. If device memory
// is short, no full graph is made.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/runner/capture/dispatcher.h"
#include "tessera/runner/launcher.h"
#include "tessera/runner/runner_parts.h"

namespace tessera {

inline constexpr std::size_t kFullPairs = 15;  // number of ratios that median_bound() takes
// Returns an upper confidence bound of the ratios' median: the third largest of the 15 ratios. The true median is below
// this bound with 99.6 % confidence, for any distribution. Precondition: there are kFullPairs ratios.
double median_bound(std::vector<double> ratios);

class FullMeasurement {
 public:
  // All arguments must outlive this object.
  FullMeasurement(RunnerParts& parts, Launcher& launcher, SizeCapture& captures, Dispatcher& dispatcher)
      : parts_(parts), launcher_(launcher), captures_(captures), dispatcher_(dispatcher) {}

  // Works on one size for about 30 ms at most. Returns false if no size is left. Precondition: CostMeasurement has
  // measured the costs of replays, and no forward is in flight.
  Result<bool> measure_next();

 private:
  struct Candidate {
    std::int64_t size = 0;
    // The full graph's time divided by the pieces' time, for each pair that was measured until now.
    std::vector<double> ratios{};
  };

  GraphRunner& runner() { return parts_.runner(RunnerRole::kPrefill); }
  std::optional<std::int64_t> next_size();
  bool may_win(std::int64_t size);
  Status work();
  Status begin(std::int64_t size);
  Result<std::vector<std::byte>> output_of(std::int64_t size, GraphForm form);
  Status measure_pairs();
  Status decide(FullCost cost);

  RunnerParts& parts_;
  Launcher& launcher_;
  SizeCapture& captures_;
  Dispatcher& dispatcher_;
  std::optional<Candidate> at_;
};

}  // namespace tessera
