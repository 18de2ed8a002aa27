// Endurance (A4 over time): random batches, each computed three times and compared.
//
//   graph      dispatched as a server's batches are
//   in bucket  the same size's operators, enqueued one by one: equal to the graph's run bit for bit
//   unpadded   eagerly at the real count: within a tolerance, since kernels are chosen by size
//
// The batches are those of a small random world of sequences: new ones come and are computed in chunks, decode, some
// are cancelled and their pages taken by others; sizes are log-uniform; rows have log-probabilities, embeddings,
// penalties. Each cache group has pages of its own pool, and gives back those that left its window. Pages of no
// sequence are NaN. Of a model with a vision tower images come, new ones and known ones, several at a time, and lie
// anywhere in prompts: rows that batches read are the tower's (soak_images.h).
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
  // Of unpadded against graph: the greatest difference in a row, relative to the row's greatest magnitude,
  // or of rows of a few numbers, to the greatest so far.
  double tolerance = 1e-5;
  bool show_progress = false;
};

// Where a router chooses experts, rounding turns a tie between two of them about once in a million rows, and that row,
// and those that attend to it, are others (docs/benchmarks.md, "How far rounding carries"). Batches of such a model
// whose unpadded forward differs by more are failures where they are more than this share of all, and more than one.
// The greatest tie that was seen moved a row by 0.24 of its greatest logit: what differs by more than kGreatestTie is
// none.
inline constexpr double kMostTies = 1e-3;
inline constexpr double kGreatestTie = 0.5;

struct SoakReport {
  std::int64_t batches = 0;
  std::int64_t tokens = 0;
  std::int64_t cancelled = 0;      // sequences
  std::int64_t finished = 0;       // sequences
  ForwardCounters forwards;        // as dispatched
  double greatest_difference = 0;  // without ties
  double greatest_tie = 0;
  std::vector<std::string> ties{};  // the first few: batch, shape, by how much it differs
  std::int64_t num_ties = 0;
  SoakImageReport images{};
  // Resident memory of the process after half of the batches and at the end, and the device's free memory then.
  std::int64_t resident_early = 0;
  std::int64_t resident_end = 0;
  std::int64_t available_early = 0;
  std::int64_t available_end = 0;
  std::vector<std::string> failures;  // the first few: batch, shape, what differed
  std::int64_t num_failures = 0;
  double seconds = 0;
};

// Precondition: runner.capture() ran. Overwrites the KV cache. The report is the same for the same seed, but for times
// and memory. An error is a forward that failed; a difference is in the report. Of several ranks each compares its own;
// the report is rank 0's, and a difference on another rank is an error that names it.
Result<SoakReport> soak(ModelRunner& runner, const SoakOptions& options);

}  // namespace tessera
