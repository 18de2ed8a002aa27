// Catches: a tower's forward that takes a slower way than it could, one that is padded further without a measurement
// that says so, and one that waits for a graph.
#include "tessera/runner/vision_choice.h"

#include <gtest/gtest.h>

#include <vector>

namespace tessera {
namespace {

const std::vector<std::int64_t> kSizes = {64, 128, 192, 256};
constexpr std::int64_t kStep = 48;

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
  EXPECT_EQ(choose(257, kSizes), eager(288, kTooLarge));
  EXPECT_EQ(choose(288, kSizes), eager(288, kTooLarge));
  EXPECT_EQ(choose_budget({.sizes = {}, .captured = {}, .costs = {}, .step = 64}, 1), eager(64, kTooLarge));
}

TEST(VisionChoice, WithoutMeasurementsNothingIsPaddedFurther) {
  EXPECT_EQ(choose(65, {64, 256}), eager(128, kNotCaptured));
  EXPECT_EQ(choose(65, {64}), eager(128, kNotCaptured));
  EXPECT_EQ(choose(65, {64, 256}, measured({{64, 1}, {256, 2}}, {})), eager(128, kNotCaptured));
  EXPECT_EQ(choose(65, {64, 256}, measured({}, {{64, 1}, {256, 2}})), eager(128, kNotCaptured));
}

TEST(VisionChoice, ALargerGraphIsTakenWhereItWasMeasuredToBeNoSlower) {
  // Operators of 128 patches take 2.33 ms between those of 64 and 256.
  EXPECT_EQ(choose(65, {64, 256}, measured({{256, 2.3}}, {{64, 2}, {256, 3}})), graph(256));
  EXPECT_EQ(choose(65, {64, 256}, measured({{256, 2.4}}, {{64, 2}, {256, 3}})), eager(128, kNotCaptured));
}

TEST(VisionChoice, AGraphThatWasMeasuredToBeSlowerIsNotTaken) {
  EXPECT_EQ(choose(128, kSizes, measured({{128, 1.03}}, {{128, 1}})), eager(128, kEagerFaster));
  EXPECT_EQ(choose(128, kSizes, measured({{128, 1.01}}, {{128, 1}})), graph(128)) << "within what measurements differ";
}

}  // namespace
}  // namespace tessera
