// A budget is a number of patches for which a graph of the vision tower is captured. Catches: a forward of the tower
// that replays a graph although an eager run is faster, or runs eagerly although a graph is faster; a forward that is
// padded to a larger budget without a measurement that favours this budget; and a forward that waits for a graph.
#include "tessera/runner/vision/vision_choice.h"

#include <gtest/gtest.h>

#include <set>
#include <string_view>
#include <vector>

namespace tessera {
namespace {

const std::vector<std::int64_t> kSizes = {64, 128, 192, 256};
constexpr std::int64_t kStep = 64;

VisionChoice choose(std::int64_t patches, const std::vector<std::int64_t>& captured, const CostTable& costs = {}) {
  return choose_budget({.sizes = kSizes, .captured = captured, .costs = costs, .step = kStep}, patches);
}
VisionChoice graph(std::int64_t size) { return {.size = size, .graph = true, .reason = VisionReason::kReplayed}; }
VisionChoice eager(std::int64_t size, VisionReason reason) { return {.size = size, .reason = reason}; }

CostTable measured(const std::vector<std::pair<std::int64_t, double>>& replays,
                   const std::vector<std::pair<std::int64_t, double>>& eagerly) {
  CostTable costs;
  for (const auto& [size, ms] : replays) costs.add(RunnerKind::kPrefill, size, ms);
  for (const auto& [size, ms] : eagerly) costs.add(RunnerKind::kEager, size, ms);
  return costs;
}

using enum VisionReason;

TEST(VisionChoice, ABudgetThatIsCapturedIsReplayed) {
  EXPECT_EQ(choose(1, kSizes), graph(64));
  EXPECT_EQ(choose(64, kSizes), graph(64));
  EXPECT_EQ(choose(65, kSizes), graph(128));
  EXPECT_EQ(choose(256, kSizes), graph(256));
}

TEST(VisionChoice, MorePatchesThanTheLargestBudgetRunEagerly) {
  EXPECT_EQ(choose(257, kSizes), eager(320, kTooLarge));
  EXPECT_EQ(choose(320, kSizes), eager(320, kTooLarge));
}

TEST(VisionChoice, ReportsWhyThereAreNoBudgets) {
  const CostTable none;
  EXPECT_EQ(choose_budget({.sizes = {}, .captured = {}, .costs = none, .step = 64}, 1), eager(64, kNothingCaptured));
  EXPECT_EQ(choose_budget({.sizes = {}, .captured = {}, .costs = none, .step = 64, .enabled = false}, 65),
            eager(128, kGraphsDisabled));
}

TEST(VisionChoice, EveryReasonHasItsOwnNameAndText) {
  std::set<std::string_view> words;
  for (int r = 0; r < kNumVisionReasons; ++r) {
    const auto reason = static_cast<VisionReason>(r);
    EXPECT_TRUE(words.insert(vision_reason_name(reason)).second) << r;
    EXPECT_TRUE(words.insert(vision_reason_text(reason)).second) << r;
    EXPECT_FALSE(is_replay(reason) && is_fallback(reason)) << vision_reason_name(reason);
  }
}

TEST(VisionChoice, PrefersFasterEagerRunWithLessPadding) {
  const std::vector<std::int64_t> apart = {64, 256};
  const auto choose_of = [&](const CostTable& costs) {
    return choose_budget({.sizes = apart, .captured = apart, .costs = costs, .step = 64}, 65);
  };
  // An eager run of 128 patches takes 1 + 2 · 64 / 192 = 1.67 ms, interpolated between 64 and 256 patches.
  EXPECT_EQ(choose_of(measured({{256, 2}}, {{64, 1}, {256, 3}})), eager(128, kEagerFaster));
  EXPECT_EQ(choose_of(measured({{256, 1.6}}, {{64, 1}, {256, 3}})), graph(256));
  EXPECT_EQ(choose_of({}), graph(256));
}

TEST(VisionChoice, WithoutMeasurementsNothingIsPaddedFurther) {
  EXPECT_EQ(choose(65, {64, 256}), eager(128, kNotCaptured));
  EXPECT_EQ(choose(65, {64}), eager(128, kNotCaptured));
  EXPECT_EQ(choose(65, {64, 256}, measured({{64, 1}, {256, 2}}, {})), eager(128, kNotCaptured));
  EXPECT_EQ(choose(65, {64, 256}, measured({}, {{64, 1}, {256, 2}})), eager(128, kNotCaptured));
}

TEST(VisionChoice, TakesALargerGraphMeasuredToBeNoSlower) {
  // An eager run of 128 patches takes 2 + 64 / 192 = 2.33 ms, interpolated between 64 and 256 patches.
  EXPECT_EQ(choose(65, {64, 256}, measured({{256, 2.3}}, {{64, 2}, {256, 3}})), graph(256));
  EXPECT_EQ(choose(65, {64, 256}, measured({{256, 2.4}}, {{64, 2}, {256, 3}})), eager(128, kNotCaptured));
}

TEST(VisionChoice, AvoidsAGraphMeasuredToBeSlower) {
  EXPECT_EQ(choose(128, kSizes, measured({{128, 1.03}}, {{128, 1}})), eager(128, kEagerFaster));
  EXPECT_EQ(choose(128, kSizes, measured({{128, 1.01}}, {{128, 1}})), graph(128)) << "within what measurements differ";
}

}  // namespace
}  // namespace tessera
