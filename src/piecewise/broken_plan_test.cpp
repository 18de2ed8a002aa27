// Catches: a broken memory plan that the comparison with isolated memory does not find. Each planner here breaks one
// rule, and the comparison must then find a difference. With the real planner it must find none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tessera/piecewise/executable_test_util.h"

namespace tessera {
namespace {

using ::testing::Contains;
using testing::ExecutableBench;
using testing::kCuts;
using testing::tokens;
using testing::two_cuts;

using Ranges = std::vector<LiveRange>;

// Makes a planner that calls the real planner with live ranges that `change` has made wrong.
template <class Change>
Planner planner_of(const Change& change) {
  return [change](std::span<const LiveRange> ranges) -> Result<MemoryPlan> {
    Ranges changed(ranges.begin(), ranges.end());
    for (LiveRange& r : changed) change(r);
    MemoryPlan plan = TRY(plan_memory(changed));
    for (std::size_t i = 0; i < ranges.size(); ++i)  // values may overlap, but all of them lie within the arena
      plan.size_bytes = std::max(plan.size_bytes, plan.offsets[i] + ranges[i].bytes);
    return plan;
  };
}

// The values of the graph kTwoCuts (executable_test_util.h), in the order of their live ranges.
enum : std::size_t { kA, kR, kOut1, kB, kEarly, kC, kOut2, kD, kE };

Planner planner_that_puts(std::size_t value, std::size_t onto) {
  return [=](std::span<const LiveRange> ranges) -> Result<MemoryPlan> {
    MemoryPlan plan = TRY(plan_memory(ranges));
    plan.offsets[value] = plan.offsets[onto];
    plan.size_bytes = std::max(plan.size_bytes, plan.offsets[value] + ranges[value].bytes);
    return plan;
  };
}

// Returns the sizes at which the replay differs from the isolated run, after all sizes were captured.
std::vector<std::int64_t> differing_sizes(Planner planner, const std::vector<std::string>& split_ops) {
  ExecutableBench bench = two_cuts();
  const std::unique_ptr<Executable> planned = *bench.create(split_ops, {.largest = {}, .planner = std::move(planner)});
  const std::unique_ptr<Executable> isolated =
      *bench.create(split_ops, {.largest = {}, .memory = MemoryPlanKind::kIsolated});
  const std::vector<std::int64_t> sizes = {24, 9, 1};
  for (const std::int64_t size : sizes) {
    EXPECT_TRUE(planned->bind(tokens(size)).ok());
    EXPECT_TRUE(planned->capture(tokens(size)).ok());
    EXPECT_TRUE(isolated->bind(tokens(size)).ok());
  }
  std::vector<std::int64_t> differing;
  for (const std::int64_t size : sizes)
    if (bench.replay(*planned, size, 7) != bench.run(*isolated, size, 7)) differing.push_back(size);
  return differing;
}

TEST(BrokenPlans, TheRealPlanDiffersNowhere) {
  EXPECT_THAT(differing_sizes(plan_memory, kCuts), ::testing::IsEmpty());
  EXPECT_THAT(differing_sizes(plan_memory, {}), ::testing::IsEmpty());
}

TEST(BrokenPlans, AreCaught) {
  // At the largest size, every fault changes the results. At the smallest size some faults have no effect, because
  // alignment leaves gaps between values.
  const struct {
    const char* what;
    Planner planner;
  } cases[] = {
      {"two live values at one place", planner_that_puts(kB, kR)},
      {"a residual under the memory a split op writes", planner_that_puts(kOut1, kR)},
      {"a result under its operand", planner_that_puts(kC, kB)},
      {"a value on an output that was written early", planner_that_puts(kD, kEarly)},
      {"operands freed in the step that reads them",
       planner_of([](LiveRange& r) { r.last = std::max(r.first, r.last - 1); })},
      {"outputs freed at once", planner_of([](LiveRange& r) { r.last = r.fixed_offset >= 0 ? r.first : r.last; })},
      {"values made one step late", planner_of([](LiveRange& r) { r.first = std::min(r.first + 1, r.last); })},
      {"everything at one place",
       [](std::span<const LiveRange> ranges) -> Result<MemoryPlan> {
         MemoryPlan plan = TRY(plan_memory(ranges));
         for (std::size_t i = 0; i < ranges.size(); ++i)
           if (ranges[i].fixed_offset < 0) plan.offsets[i] = 8192;
         plan.size_bytes = 16384;
         return plan;
       }},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(differing_sizes(c.planner, kCuts), Contains(24)) << c.what << ", cut";
    EXPECT_THAT(differing_sizes(c.planner, {}), Contains(24)) << c.what << ", whole";
  }
}

TEST(BrokenPlans, TooSmallPlacesAreCaughtWhereTheyMatter) {
  // The plan gives each value only half of its bytes. Alignment rounds the halves up, so the values of the smallest
  // bucket still fit.
  EXPECT_THAT(differing_sizes(planner_of([](LiveRange& r) { r.bytes /= 2; }), kCuts), Contains(24));
}

// A planner's own error reaches the caller and leaves the executable usable.
TEST(BrokenPlans, APlannersErrorIsReported) {
  ExecutableBench bench = two_cuts();
  bool fails = true;
  const std::unique_ptr<Executable> executable =
      *bench.create(kCuts, {.largest = {}, .planner = [&](std::span<const LiveRange> ranges) -> Result<MemoryPlan> {
                              if (fails) return internal_error("no plan today");
                              return plan_memory(ranges);
                            }});
  EXPECT_THAT(executable->bind(tokens(4)).message(), ::testing::HasSubstr("no plan today"));
  EXPECT_FALSE(executable->bound(tokens(4)));
  EXPECT_FALSE(executable->memory_need(tokens(4)).ok());
  fails = false;
  ASSERT_TRUE(executable->bind(tokens(4)).ok());
  EXPECT_EQ(bench.run(*executable, 4, 1), bench.reference(4, 1));
}

}  // namespace
}  // namespace tessera
