// A fallback is a forward that runs without a graph, or that waits until its size is bound to kernels and addresses.
// Catches: frequent fallbacks that are not reported; a separate warning for each fallback; warnings about eager runs
// that were requested or cost less than a padded replay; and a warning with the counts of another minute.
#include "tessera/engine/report/fallback_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr Decision kReplay{.runner = RunnerKind::kDecode, .size = 4, .reason = Reason::kExactSize};
Decision eager(Reason reason) { return {.runner = RunnerKind::kEager, .size = 9, .reason = reason}; }

class Watched {
 public:
  // Adds `count` forwards at time `at`; returns the warnings.
  std::vector<std::string> add(int count, const Decision& decision, seconds at, bool compiled = false) {
    std::vector<std::string> warnings;
    for (int i = 0; i < count; ++i) {
      compiles_ += compiled ? 1 : 0;
      std::optional<std::string> warning = watch_.add(decision, compiles_, kStart + at);
      if (warning) warnings.push_back(*std::move(warning));
    }
    return warnings;
  }

 private:
  static constexpr FallbackWatch::Clock::time_point kStart{std::chrono::hours(5)};
  FallbackWatch watch_;
  std::int64_t compiles_ = 0;
};

TEST(FallbackWatch, WarnsOnceAMinuteWithReasonsAndCounts) {
  Watched watch;
  EXPECT_THAT(watch.add(15, eager(Reason::kAboveLargestSize), seconds(1)), ::testing::IsEmpty());
  EXPECT_THAT(watch.add(10, eager(Reason::kReplayFailed), seconds(20)), ::testing::IsEmpty());
  EXPECT_THAT(watch.add(100, kReplay, seconds(60)), ::testing::IsEmpty()) << "the minute began with the first forward";
  const std::vector<std::string> warnings = watch.add(100, kReplay, seconds(61));
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_THAT(warnings[0], AllOf(HasSubstr("25 of 125 forwards"), HasSubstr("above the largest captured size: 15"),
                                 HasSubstr("piecewise_cuda_graph_max_tokens"), HasSubstr("the replay failed: 10")));
  EXPECT_THAT(watch.add(1, kReplay, seconds(130)), ::testing::IsEmpty()) << "the second minute had no fallback";
}

TEST(FallbackWatch, ForwardsOfTheTowerHaveTheirOwnShare) {
  FallbackWatch watch;
  const FallbackWatch::Clock::time_point start{std::chrono::hours(5)};
  watch.add(kReplay, /*shape_compiles=*/0, start);
  for (int i = 0; i < 30; ++i) watch.add_tower(VisionReason::kTooLarge);
  for (int i = 0; i < 10; ++i) watch.add_tower(VisionReason::kNotCaptured);
  for (int i = 0; i < 20; ++i) watch.add_tower(VisionReason::kReplayed);
  const std::optional<std::string> warning = watch.add(kReplay, /*shape_compiles=*/0, start + seconds(61));
  ASSERT_TRUE(warning.has_value());
  EXPECT_THAT(*warning, AllOf(HasSubstr("30 of 60 forwards of the vision tower"),
                              HasSubstr("more patches than the largest budget: 30"), Not(HasSubstr("not captured"))));
}

TEST(FallbackWatch, FewOrRareFallbacksAreNotReported) {
  Watched few;
  few.add(19, eager(Reason::kAboveLargestSize), seconds(0));
  EXPECT_THAT(few.add(1, kReplay, seconds(60)), ::testing::IsEmpty());
  Watched rare;
  rare.add(20, eager(Reason::kAboveLargestSize), seconds(0));
  rare.add(180, kReplay, seconds(0));
  EXPECT_THAT(rare.add(1, kReplay, seconds(60)), ::testing::IsEmpty()) << "just a tenth";
  Watched enough;
  enough.add(20, eager(Reason::kAboveLargestSize), seconds(0));
  enough.add(179, kReplay, seconds(0));
  EXPECT_EQ(enough.add(1, kReplay, seconds(60)).size(), 1U);
}

TEST(FallbackWatch, EagerForwardsThatWereRequestedAreNoFallback) {
  for (const Reason reason : {Reason::kGraphsDisabled, Reason::kPrefillGraphsDisabled, Reason::kDecodeGraphsDisabled,
                              Reason::kPaddingCostsMore, Reason::kEagerRequested}) {
    Watched watch;
    watch.add(100, eager(reason), seconds(0));
    EXPECT_THAT(watch.add(1, kReplay, seconds(60)), ::testing::IsEmpty()) << reason_name(reason);
  }
  for (const Reason reason : {Reason::kAboveLargestSize, Reason::kPaddingDisabled, Reason::kNothingCaptured,
                              Reason::kRowsNotOneEach, Reason::kReplayFailed}) {
    Watched watch;
    watch.add(100, eager(reason), seconds(0));
    EXPECT_EQ(watch.add(1, kReplay, seconds(60)).size(), 1U) << reason_name(reason);
  }
}

TEST(FallbackWatch, SizesBoundBetweenForwardsAreNotReported) {
  FallbackWatch watch;
  const FallbackWatch::Clock::time_point start{std::chrono::hours(5)};
  watch.add(kReplay, /*shape_compiles=*/0, start);
  for (int i = 1; i <= 30; ++i) {
    watch.bound_meanwhile(i);
    watch.add(kReplay, /*shape_compiles=*/i, start);
  }
  EXPECT_EQ(watch.add(kReplay, /*shape_compiles=*/30, start + seconds(61)), std::nullopt);
}

TEST(FallbackWatch, SizesBoundInServiceAreReported) {
  Watched watch;
  watch.add(30, kReplay, seconds(0), /*compiled=*/true);
  watch.add(30, kReplay, seconds(0));
  const std::vector<std::string> warnings = watch.add(1, kReplay, seconds(90));
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_THAT(warnings[0], AllOf(HasSubstr("30 of 60 forwards"), HasSubstr("piecewise_cuda_graph_tokens"),
                                 Not(HasSubstr("without a graph"))));
}

}  // namespace
}  // namespace tessera
