// Catches: two values that share bytes although both are live in one step; a memory plan that wastes memory, moves a
// range that has a fixed offset, or changes from run to run; and a checker that accepts an invalid plan.
#include "tessera/compile/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <random>

#include "tessera/device/device.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::int64_t kA = static_cast<std::int64_t>(kDeviceAlignment);
// For random ranges without fixed offsets, the arena may be at most this many times as large as
// MemoryPlan::lower_bound_bytes, the largest sum of bytes that are live in one step. With the seeds of this test, the
// planner stays well below this factor. The test prints the largest ratio.
constexpr double kWorstFactor = 1.6;

std::int64_t aligned(std::int64_t bytes) { return (bytes + kA - 1) / kA * kA; }

// Makes up to `most` random ranges. Some are live for a few steps and others for many. Sizes go from zero to large, and
// some are equal.
std::vector<LiveRange> random_ranges(std::mt19937& random, int most) {
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const int steps = 1 + below(40);
  std::vector<LiveRange> ranges(static_cast<std::size_t>(1 + below(most)));
  for (LiveRange& r : ranges) {
    r.first = below(steps);
    r.last = std::min(steps - 1, r.first + (below(4) == 0 ? below(steps) : below(3)));
    r.bytes = below(10) == 0 ? 0 : below(3) == 0 ? 1024 : 1 + below(20000);
  }
  return ranges;
}

// Gives the first `outputs` ranges fixed offsets, like the outputs of an executable. They lie one after another,
// beginning at offset 0, and are live in all steps.
std::vector<LiveRange> with_fixed_outputs(std::vector<LiveRange> ranges, std::size_t outputs) {
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < std::min(outputs, ranges.size()); ++i) {
    ranges[i].first = 0;
    ranges[i].last = 1000;
    ranges[i].fixed_offset = offset;
    offset += aligned(ranges[i].bytes);
  }
  return ranges;
}

std::int64_t most_alive(const std::vector<LiveRange>& ranges) {
  std::int64_t most = 0;
  for (const LiveRange& at : ranges) {
    std::int64_t alive = 0;
    for (const LiveRange& r : ranges) alive += r.first <= at.first && at.first <= r.last ? aligned(r.bytes) : 0;
    most = std::max(most, alive);
  }
  return most;
}

// Returns the first fault of the plan, or "" if there is none. Offsets must be multiples of kA, fixed offsets must be
// kept, and each range must end before size_bytes. No two ranges that are live in one step may share a byte.
std::string first_fault(const std::vector<LiveRange>& ranges, const MemoryPlan& plan) {
  if (plan.offsets.size() != ranges.size()) return "offsets are missing";
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const LiveRange& a = ranges[i];
    const std::int64_t begin = plan.offsets[i];
    if (begin < 0 || begin % kA != 0 || begin + a.bytes > plan.size_bytes) return "place of " + std::to_string(i);
    if (a.fixed_offset >= 0 && begin != a.fixed_offset) return "moved " + std::to_string(i);
    for (std::size_t j = 0; j < i; ++j) {
      const LiveRange& b = ranges[j];
      const bool together = a.first <= b.last && b.first <= a.last;
      const bool overlap = begin < plan.offsets[j] + b.bytes && plan.offsets[j] < begin + a.bytes;
      if (together && overlap && a.bytes > 0 && b.bytes > 0) return std::to_string(j) + " under " + std::to_string(i);
    }
  }
  return "";
}

TEST(MemoryPlan, SoundAndCompactOnRandomRanges) {
  std::mt19937 random(1);
  double worst = 1;
  for (int i = 0; i < 4000; ++i) {
    const std::vector<LiveRange> ranges = random_ranges(random, 60);
    const Result<MemoryPlan> plan = plan_memory(ranges);
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    ASSERT_EQ(first_fault(ranges, *plan), "") << "case " << i;
    ASSERT_EQ(plan->lower_bound_bytes, most_alive(ranges)) << "case " << i;
    ASSERT_GE(plan->size_bytes, plan->lower_bound_bytes) << "case " << i;
    if (plan->lower_bound_bytes > 0)
      worst = std::max(worst, static_cast<double>(plan->size_bytes) / static_cast<double>(plan->lower_bound_bytes));
  }
  std::printf("greatest size over lower bound: %.3f\n", worst);
  EXPECT_LE(worst, kWorstFactor);
}

TEST(MemoryPlan, KeepsFixedPlaces) {
  std::mt19937 random(2);
  for (int i = 0; i < 2000; ++i) {
    const std::vector<LiveRange> ranges = with_fixed_outputs(random_ranges(random, 40), 1 + random() % 4);
    const Result<MemoryPlan> plan = plan_memory(ranges);
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    ASSERT_EQ(first_fault(ranges, *plan), "") << "case " << i;
  }
}

TEST(MemoryPlan, EqualRangesGetEqualPlans) {
  std::mt19937 random(3);
  for (int i = 0; i < 100; ++i) {
    const std::vector<LiveRange> ranges = random_ranges(random, 60);
    EXPECT_EQ(plan_memory(ranges)->offsets, plan_memory(ranges)->offsets);
  }
}

TEST(MemoryPlan, ReusesMemoryOfDeadRanges) {
  // The first range is live in steps 0–1, the second in steps 1–2, and the third, which is the largest, in steps 2–3.
  const std::vector<LiveRange> ranges = {{64, 0, 1}, {64, 1, 2}, {128, 2, 3}};
  EXPECT_THAT(plan_memory(ranges)->offsets, ElementsAre(0, kA, 0));
  EXPECT_EQ(plan_memory(ranges)->size_bytes, 2 * kA);
}

TEST(MemoryPlan, FillsTheLowestHole) {
  // Between two fixed ranges there is a hole of 2 · kA bytes. The third range fits into the hole, and the fourth range
  // does not.
  const std::vector<LiveRange> ranges = {{kA, 0, 9, 0}, {kA, 0, 9, 3 * kA}, {2 * kA, 1, 2}, {3 * kA, 1, 2}};
  EXPECT_THAT(plan_memory(ranges)->offsets, ElementsAre(0, 3 * kA, kA, 4 * kA));
}

TEST(MemoryPlan, NoRangesNeedNoMemory) {
  EXPECT_EQ(plan_memory({})->size_bytes, 0);
  const std::vector<LiveRange> empty = {{0, 0, 5}, {0, 0, 5}};
  const Result<MemoryPlan> plan = plan_memory(empty);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->size_bytes, 0);
  EXPECT_EQ(plan->lower_bound_bytes, 0);
}

TEST(MemoryPlan, RefusesFixedRangesThatCannotHold) {
  const std::vector<LiveRange> overlapping = {{2 * kA, 0, 3, 0}, {kA, 3, 5, kA}};
  const Result<MemoryPlan> plan = plan_memory(overlapping);
  ASSERT_FALSE(plan.ok());
  EXPECT_THAT(plan.status().message(), HasSubstr("ranges 0 and 1 are both alive in step 3"));

  const std::vector<LiveRange> one_after_another = {{2 * kA, 0, 3, 0}, {kA, 4, 5, kA}};
  EXPECT_TRUE(plan_memory(one_after_another).ok());

  const std::vector<LiveRange> misaligned = {{8, 0, 1, kA / 2}};
  EXPECT_THAT(plan_memory(misaligned).status().message(), HasSubstr("does not lie aligned"));
}

struct BadPlan {
  const char* what;
  std::vector<LiveRange> ranges;
  MemoryPlan plan;
  const char* message;  // "" if the plan is correct
};

TEST(CheckMemoryPlan, FindsEveryFault) {
  const std::vector<LiveRange> two = {{2 * kA, 0, 1}, {kA, 1, 2}};
  const std::vector<LiveRange> apart = {{2 * kA, 0, 1}, {kA, 2, 2}};
  const BadPlan cases[] = {
      {"beside each other", two, {{0, 2 * kA}, 3 * kA, 0}, ""},
      {"one after the other", apart, {{0, kA}, 2 * kA, 0}, ""},
      {"nothing inside something", {{2 * kA, 0, 1}, {0, 0, 1}}, {{0, kA}, 2 * kA, 0}, ""},
      {"same place", two, {{0, 0}, 3 * kA, 0}, "both alive in step 1 and share bytes at offset 0"},
      {"tail under head", two, {{0, kA}, 3 * kA, 0}, "both alive in step 1 and share bytes at offset 256"},
      {"past the end", two, {{0, 2 * kA}, 3 * kA - 1, 0}, "range 1 at offset 512 with 256 bytes"},
      {"before the start", two, {{-kA, 2 * kA}, 3 * kA, 0}, "range 0 at offset -256"},
      {"misaligned", two, {{0, 2 * kA + 8}, 4 * kA, 0}, "range 1 at offset 520"},
      {"not with its neighbour",
       {{4 * kA, 0, 9}, {kA, 20, 21}, {kA, 5, 5}},
       {{0, kA, 3 * kA}, 4 * kA, 0},
       "ranges 0 and 2 are both alive in step 5"},
  };
  for (const BadPlan& c : cases) {
    const Status status = check_memory_plan(c.ranges, c.plan);
    EXPECT_EQ(status.ok(), std::string_view(c.message).empty()) << c.what;
    EXPECT_THAT(status.message(), HasSubstr(c.message)) << c.what;
  }
}

// Compares check_memory_plan() with first_fault(), on correct plans and on plans in which one range was moved.
TEST(CheckMemoryPlan, AgreesWithTheRuleOnRandomPlans) {
  std::mt19937 random(4);
  int broken = 0;
  for (int i = 0; i < 3000; ++i) {
    const std::vector<LiveRange> ranges = random_ranges(random, 20);
    MemoryPlan plan = *plan_memory(ranges);
    const std::size_t moved = random() % ranges.size();
    plan.offsets[moved] = plan.offsets[random() % ranges.size()] + (random() % 8 == 0 ? 8 : 0);
    const std::string fault = first_fault(ranges, plan);
    ASSERT_EQ(check_memory_plan(ranges, plan).ok(), fault.empty()) << "case " << i << ": " << fault;
    broken += fault.empty() ? 0 : 1;
  }
  EXPECT_GT(broken, 300);
}

}  // namespace
}  // namespace tessera
