// The sequences of soak(): which tokens the next batch has, and in which pages.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "tessera/ops/forward_batch.h"
#include "tessera/runner/runner_options.h"

namespace tessera {

class SoakWorld {
 public:
  // `cache_groups` of the model; the cache has three pages at least. `hidden_size` is that of an embedding.
  SoakWorld(const RunnerOptions& options, std::size_t cache_groups, std::int64_t vocab_size, std::int64_t hidden_size,
            std::uint64_t seed);

  // Never empty. What it computes counts as computed from then on.
  const ForwardBatch& next();
  std::int64_t cancelled() const { return cancelled_; }
  std::int64_t finished() const { return finished_; }
  std::mt19937_64& random() { return random_; }
  // Uniform in [0, below).
  std::int64_t draw(std::int64_t below);
  bool chance(double probability) { return std::uniform_real_distribution<double>(0, 1)(random_) < probability; }

 private:
  struct Sequence {
    std::int64_t length;    // tokens it comes to
    std::int64_t prompt;    // of them, computed in chunks
    std::int64_t computed;  // so far
    bool embedded;          // some of its tokens have an embedding instead
    std::vector<PageId> pages;
  };

  void admit();
  void cancel_some();
  void append(Sequence& sequence, std::int64_t count, bool all_rows);
  void end(std::size_t index);
  std::int64_t log_uniform(std::int64_t most);

  const RunnerOptions& options_;
  std::int64_t longest_;  // tokens of a sequence: there is always room for two
  std::int64_t vocab_size_;
  std::int64_t hidden_size_;
  std::mt19937_64 random_;
  std::vector<PageId> free_;  // taken from the back
  std::vector<Sequence> live_;
  ForwardBatch batch_;
  std::int64_t cancelled_ = 0;
  std::int64_t finished_ = 0;
};

}  // namespace tessera
