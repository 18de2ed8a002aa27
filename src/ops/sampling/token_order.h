// TokenOrder treats one row of logits as a distribution over tokens in the order of the draw: by descending logit,
// equal logits by id. NaN is left out. It finds the shortest prefix of this order whose number or weight of tokens
// reaches a given amount, without sorting the row: a histogram of weights finds the bin of 1/16 nat in which the prefix
// ends, and only the tokens of that bin are examined.
//
// Weights are integers, so that sums do not depend on the order: ⌊2^42 · e^((logit - greatest) / temperature)⌉.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera {

inline constexpr int kWeightBits = 42;
inline constexpr float kReach =
    30.0f;  // nats below the largest logit at which tokens weigh nothing: e^-30 is 0.4 units
inline constexpr std::int64_t kMaxVocab = std::int64_t{1} << 21;  // keeps the sum of all weights below 2^64

struct LogitRow {
  const float* logits;  // [vocab]
  std::int64_t vocab;   // at most kMaxVocab
  float greatest;       // greatest of the logits; finite
  float temperature;    // above 0
};

// A prefix of the order.
struct TokenPrefix {
  std::uint64_t count = 0;
  std::uint64_t weight = 0;
  std::int32_t last = -1;  // id of the last of these tokens
};

class TokenOrder {
 public:
  static std::size_t scratch_bytes(std::int64_t vocab);

  // Weighs all tokens. `scratch` has scratch_bytes(row.vocab) bytes, aligned to 16. Row and scratch are borrowed.
  TokenOrder(const LogitRow& row, std::byte* scratch);

  // Returns the number of tokens that have a weight; a token of less than half a unit has none.
  std::uint64_t count() const { return count_; }
  std::uint64_t weight() const { return weight_; }

  // Returns the first n tokens. Precondition: 1 <= n <= count().
  TokenPrefix first(std::uint64_t n) const;
  // Returns the shortest prefix whose weight is at least `weight`. Precondition: 1 <= weight <= weight().
  TokenPrefix lightest(std::uint64_t weight) const;
  // Returns the weight of all tokens whose nats, (logit - greatest) / temperature, are at least `nats`. These tokens
  // come first in the order. Precondition: -kReach < nats <= 0.
  std::uint64_t weight_from(float nats) const;

 private:
  // Bins of 1/16 nat below the greatest logit, and one bin for tokens out of reach.
  static constexpr int kBins = 480;
  struct Bin {
    std::uint64_t count = 0;
    std::uint64_t weight = 0;
  };
  enum class Measure { kCount, kWeight };
  struct Candidate;

  template <Measure kMeasure>
  TokenPrefix select(std::uint64_t need) const;
  template <Measure kMeasure>
  static std::uint64_t measure(const Candidate& c);
  template <Measure kMeasure>
  static TokenPrefix select_candidate(Candidate* c, std::int64_t n, std::uint64_t need);
  std::int64_t collect(int bin) const;

  LogitRow row_;
  Candidate* candidates_;     // [vocab], scratch
  std::uint16_t* token_bin_;  // [vocab]
  Bin bins_[kBins + 1];
  std::uint64_t count_ = 0;
  std::uint64_t weight_ = 0;
};

}  // namespace tessera
