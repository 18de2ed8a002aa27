// Measures in idle moments whether prefill sizes run faster as one full graph, which holds attention too, than in
// pieces.
//
// A full graph saves the gaps at the cuts, and runs attention on a grid that is fixed for the size. It is kept if both
// forms give the same bits and the full graph was faster in nearly all pairs of replays, which alternate. Measurement
// starts with the smallest size. The cost of a cut does not grow with the size, so after two sizes without a gain all
// larger sizes are skipped. Sizes whose replay takes so long that saving the cuts cannot gain enough are skipped too.
//
// At most one full graph exists beside the chosen ones, and none is made if device memory is short.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/runner/dispatch/dispatcher.h"
#include "tessera/runner/launcher.h"
#include "tessera/runner/runner_parts.h"

namespace tessera {

// Returns a value that the median of the pairs' ratios stays below with 99.6 % confidence: the third largest of 15
// ratios, for any distribution. Precondition: there are kFullPairs ratios.
inline constexpr std::size_t kFullPairs = 15;
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
    std::vector<double> ratios{};  // one for each pair so far: full graph's time over pieces' time
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
