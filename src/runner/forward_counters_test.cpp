// Catches: histogram buckets that contain a number above their limit; and sums that leave out a key or include a wrong
// one.
#include "tessera/runner/forward_counters.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tessera {
namespace {

TEST(TokenHistogram, CountsFallIntoTheBucketWithTheNextLimit) {
  int last = 0;
  for (std::int64_t tokens = 1; tokens <= (std::int64_t{1} << 20); tokens += 1 + tokens / 97) {
    const int bucket = TokenHistogram::bucket_of(tokens);
    EXPECT_LE(tokens, TokenHistogram::limit(bucket)) << tokens;
    if (bucket > 0) {
      EXPECT_GT(tokens, TokenHistogram::limit(bucket - 1));
    }
    EXPECT_GE(bucket, last);
    last = bucket;
  }
  EXPECT_EQ(last, TokenHistogram::kBuckets - 1);
  EXPECT_EQ(TokenHistogram::limit(TokenHistogram::kBuckets - 1), std::int64_t{1} << 20);
  EXPECT_EQ(TokenHistogram::bucket_of(std::int64_t{1} << 30), TokenHistogram::kBuckets - 1);
}

TEST(ForwardCounters, KeysAreCountedApartAndSummed) {
  ForwardCounters counters;
  counters.add({RunnerKind::kPrefill, 64, 4, Reason::kPaddedToSize}, 60, false);
  counters.add({RunnerKind::kPrefill, 64, 0, Reason::kExactSize}, 64, false);
  counters.add({RunnerKind::kEager, 900, 0, Reason::kAboveLargestSize}, 900, false);
  counters.add({RunnerKind::kEager, 901, 0, Reason::kAboveLargestSize}, 901, false);
  counters.add({RunnerKind::kDecode, 64, 1, Reason::kPaddedToSize}, 63, true);
  EXPECT_EQ(counters.by_key.size(), 4U);
  EXPECT_TRUE(std::is_sorted(counters.by_key.begin(), counters.by_key.end(),
                             [](const auto& a, const auto& b) { return a.first < b.first; }));
  ASSERT_NE(counters.find({RunnerKind::kPrefill, 64, Reason::kExactSize}), nullptr);
  EXPECT_EQ(counters.find({RunnerKind::kPrefill, 64, Reason::kExactSize})->tokens, 64);
  EXPECT_EQ(counters.find({RunnerKind::kPrefill, 63, Reason::kExactSize}), nullptr);
  EXPECT_EQ(counters.forwards(Reason::kAboveLargestSize), 2);
  EXPECT_EQ(counters.forwards(Reason::kPaddedToSize), 2);
  EXPECT_EQ(counters.of_size(RunnerKind::kPrefill, 64).forwards, 2);
  EXPECT_EQ(counters.of_size(RunnerKind::kPrefill, 64).tokens, 124);
  EXPECT_EQ(counters.of_size(RunnerKind::kPrefill, 64).padding, 4);
  EXPECT_EQ(counters.tokens, 60 + 64 + 900 + 901 + 63);
  EXPECT_EQ(counters.padded_tokens, 5);
  EXPECT_EQ(counters.prefill_tokens.count(TokenHistogram::bucket_of(60)), 1);
  EXPECT_EQ(counters.prefill_tokens.count(TokenHistogram::bucket_of(63)), 1) << "64; the decode is not counted";
}

}  // namespace
}  // namespace tessera
