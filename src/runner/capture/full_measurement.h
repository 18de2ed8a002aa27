// Measuring prefill sizes as one graph, with attention inside, against their pieces, when there is nothing else to do.
//
// A full graph saves the gaps at the cuts, and runs attention on a grid that is fixed for the size. It is kept where
// both come to the same bits and it was faster in nearly all of the pairs of replays, which run in turn. Smallest size
// first: what a cut costs does not grow with the size, so that after two sizes that win nothing the larger ones are let
// be, as are those whose replay takes so long that no cuts could make up the margin.
//
// One full graph beside those that were chosen exists at a time, and none is made where the device's memory is short.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/runner/dispatch/dispatcher.h"
#include "tessera/runner/runner_parts.h"

namespace tessera {

// Of ratios of pairs: one that their median stays below with 99.6 % confidence (the third largest of 15, whatever their
// distribution). Precondition: kFullPairs ratios.
inline constexpr std::size_t kFullPairs = 15;
double median_bound(std::vector<double> ratios);

class FullMeasurement {
 public:
  // What it works on outlives this.
  FullMeasurement(RunnerParts& parts, Dispatcher& dispatcher) : parts_(parts), dispatcher_(dispatcher) {}

  // Works on one size for about 30 ms at most. False where no size is left. Precondition: costs of replays were
  // measured (CostMeasurement), and no forward is in flight.
  Result<bool> measure_next();

 private:
  struct Candidate {
    std::int64_t size = 0;
    std::vector<double> ratios{};  // of pairs so far: full over pieces
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
  Dispatcher& dispatcher_;
  std::optional<Candidate> at_;
};

}  // namespace tessera
