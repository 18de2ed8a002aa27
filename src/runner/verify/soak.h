// Endurance test: computes random batches three times each and compares the results.
//
//   graph      dispatched as a server's batches are
//   in bucket  the same size's operators, enqueued one by one: equal to the graph's run bit for bit
//   unpadded   eagerly at the real count: within a tolerance, since kernels are chosen by size
//
// The batches come from a small random world of sequences. New sequences arrive, are computed in chunks and decode;
// some are cancelled, and others take their pages. Sizes are log-uniform. Rows have log-probabilities, embeddings and
// penalties. Each cache group has pages of its own pool and gives back those that its window has left. Pages of no
// sequence are NaN. With a vision tower, new and known images arrive, several at a time, and lie anywhere in prompts:
// the rows that batches read are the tower's (soak_images.h).
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
  // Largest accepted difference between an unpadded forward and a graph forward, relative to the row's greatest
  // magnitude or, for rows of a few numbers, to the greatest magnitude so far.
  double tolerance = 1e-5;
  bool show_progress = false;
};

// Limits of ties. If a router chooses experts, rounding decides a tie between two of them differently about once in a
// million rows. The tied row and the rows that attend to it then differ (docs/measurements/correctness.md, "How far
// rounding carries"). For such a model, batches that exceed the tolerance are failures if they are more than this share
// of all batches and more than one. The greatest observed tie moved a row by 0.24 of its greatest logit, so a
// difference above kGreatestTie is never counted as a tie.
inline constexpr double kMostTies = 1e-3;
inline constexpr double kGreatestTie = 0.5;

struct SoakReport {
  std::int64_t batches = 0;
  std::int64_t tokens = 0;
  std::int64_t cancelled = 0;      // sequences
  std::int64_t finished = 0;       // sequences
  ForwardCounters forwards;        // as dispatched
  double greatest_difference = 0;  // ties left out
  double greatest_tie = 0;
  std::vector<std::string> ties{};  // the first few: batch, shape, and difference
  std::int64_t num_ties = 0;
  SoakImageReport images{};
  // Resident memory of the process after half of the batches and at the end, and the device's free memory at those
  // times.
  std::int64_t resident_early = 0;
  std::int64_t resident_end = 0;
  std::int64_t available_early = 0;
  std::int64_t available_end = 0;
  std::vector<std::string> failures;  // the first few: batch, shape, and what differed
  std::int64_t num_failures = 0;
  double seconds = 0;
};

// Runs the test. Precondition: runner.capture() ran. Overwrites the KV cache. The report depends only on the seed,
// except for times and memory. An error means that a forward failed; a difference is in the report. With several ranks
// each compares its own results. The report is rank 0's, and a difference on another rank is an error that names it.
Result<SoakReport> soak(ModelRunner& runner, const SoakOptions& options);

}  // namespace tessera
