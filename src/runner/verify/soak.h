// Runs an endurance test: computes random batches three times each and compares the results.
//
//   graph      runs as dispatch decides, like a server's batches
//   in bucket  runs the same operators at the same padded size, but one by one: must give the same bits as `graph`
//   unpadded   runs eagerly at the real size: must agree within a tolerance, because the size decides which kernels run
//
// The batches come from random sequences (soak_world.h). New sequences arrive, are computed in chunks and decode. Some
// sequences are cancelled, and other sequences then take their pages. Batch sizes are log-uniform. Some batches want
// log-probabilities, hidden states or penalties, and some tokens use embeddings. Each cache group has a pool of pages.
// A page returns to the pool when the group's sliding window no longer reaches it. Pages that belong to no sequence
// contain NaN. If the model has a vision tower, prompts contain images at any place. Some of these images are new, and
// others were encoded before. Several images may be encoded at a time. Batches then read the tower's output rows
// (soak_images.h).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/runner/model_runner.h"
#include "tessera/runner/verify/soak_images.h"

namespace tessera {

struct SoakOptions {
  std::int64_t batches = 1000;
  std::uint64_t seed = 1;
  // The largest accepted difference between an unpadded forward and a graph forward. It is relative to the greatest
  // magnitude in the row or, for rows of a few numbers, in all rows so far.
  double tolerance = 1e-5;
  bool show_progress = false;
};

// Limits for ties in the routers of mixture-of-experts models. In about one of a million rows, two experts have nearly
// the same router score, and rounding makes the two computations choose different experts. This row and the rows that
// attend to it then differ (docs/measurements/correctness.md, "How far rounding carries"). For such a model, batches
// above the tolerance count as ties. The ties are failures if there are at least two of them and their share of all
// batches exceeds kMostTies. The greatest observed tie moved a row by 0.24 of its greatest logit, so a difference above
// kGreatestTie is never counted as a tie.
inline constexpr double kMostTies = 1e-3;
inline constexpr double kGreatestTie = 0.5;

struct SoakReport {
  std::int64_t batches = 0;
  std::int64_t tokens = 0;
  std::int64_t cancelled = 0;      // number of sequences
  std::int64_t finished = 0;       // number of sequences
  ForwardCounters forwards;        // the forwards that dispatch decided
  double greatest_difference = 0;  // in all batches, without ties
  double greatest_tie = 0;
  std::vector<std::string> ties{};  // the first few ties with batch, shape and difference
  std::int64_t num_ties = 0;
  SoakImageReport images{};
  // The resident memory of the process and the device's free memory, after half of the batches (early) and at the end.
  std::int64_t resident_early = 0;
  std::int64_t resident_end = 0;
  std::int64_t available_early = 0;
  std::int64_t available_end = 0;
  std::vector<std::string> failures;  // the first few failures with batch, shape and what differs
  std::int64_t num_failures = 0;
  double seconds = 0;
};

// Runs the test. Precondition: runner.capture() ran. Overwrites the KV cache. The report depends only on the options,
// except for times and memory. soak() returns an error if a forward failed, and lists differences in the report. If
// there are several ranks, each rank compares its own results. The result is the report of rank 0, and a difference on
// another rank becomes an error that names the rank.
Result<SoakReport> soak(ModelRunner& runner, const SoakOptions& options);

}  // namespace tessera
