// TokenOrder treats one row of logits as a distribution over tokens. The "order of the draw" is by descending logit,
// and by id among equal logits. Tokens whose logit is NaN are left out. A prefix is the first tokens of this order.
// TokenOrder finds the shortest prefix whose number of tokens or total weight reaches a given amount. It does not sort
// the row. A histogram gives the bin of 1/16 nat in which the prefix ends, and only the tokens of that bin are
// examined.
//
// A weight is the integer ⌊2^42 · e^((logit - greatest) / temperature)⌉, so sums do not depend on the order of
// addition.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera {

inline constexpr int kWeightBits = 42;
inline constexpr float kReach =
    30.0f;  // a token this many nats below the largest logit weighs nothing: e^-30 is 0.4 units
inline constexpr std::int64_t kMaxVocab = std::int64_t{1} << 21;  // keeps the sum of all weights below 2^64

struct LogitRow {
  const float* logits;  // [vocab]
  std::int64_t vocab;   // at most kMaxVocab
  float greatest;       // the greatest of the logits, which is finite
  float temperature;    // above 0
};

// The first tokens in the order of the draw.
struct TokenPrefix {
  std::uint64_t count = 0;
  std::uint64_t weight = 0;
  std::int32_t last = -1;  // the id of the last of these tokens
};

class TokenOrder {
 public:
  static std::size_t scratch_bytes(std::int64_t vocab);

  // Weighs all tokens. `scratch` has scratch_bytes(row.vocab) bytes, aligned to 16. The logits and the scratch must
  // outlive this object.
  TokenOrder(const LogitRow& row, std::byte* scratch);

  // A token is within reach if its scaled logit, (logit - greatest) / temperature, is above -kReach. count() returns
  // the number of tokens within reach, and weight() returns their total weight.
  std::uint64_t count() const { return count_; }
  std::uint64_t weight() const { return weight_; }

  // Returns the first n tokens. Precondition: 1 <= n <= count().
  TokenPrefix first(std::uint64_t n) const;
  // Returns the shortest prefix whose weight is at least `weight`. Precondition: 1 <= weight <= weight().
  TokenPrefix lightest(std::uint64_t weight) const;
  // Returns the total weight of all tokens whose scaled logit, (logit - greatest) / temperature, is at least `nats`.
  // These tokens come first in the order of the draw. Precondition: -kReach < nats <= 0.
  std::uint64_t weight_from(float nats) const;

 private:
  // The number of bins for tokens within reach. Each bin covers 1/16 nat. One more bin holds the tokens that are not
  // within reach, because their scaled logit is -kReach or less, or NaN.
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
