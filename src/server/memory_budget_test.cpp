// Catches: memory that is counted twice or never released; a limit that two threads exceed together; and refusals that
// leave a charge behind.
#include "tessera/server/memory_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace tessera {
namespace {

using ::testing::HasSubstr;

TEST(MemoryBudget, ChargesGrowShrinkAndEnd) {
  MemoryBudget budget(100);
  {
    MemoryCharge charge(&budget);
    ASSERT_TRUE(charge.set(60).ok());
    EXPECT_EQ(budget.used(), 60);
    ASSERT_TRUE(charge.set(20).ok());
    EXPECT_EQ(budget.used(), 20);
    MemoryCharge moved = std::move(charge);
    EXPECT_EQ(moved.bytes(), 20);
    EXPECT_EQ(budget.used(), 20);
    moved = MemoryCharge(&budget);
    EXPECT_EQ(budget.used(), 0);
    ASSERT_TRUE(moved.set(100).ok());
  }
  EXPECT_EQ(budget.used(), 0);
  EXPECT_EQ(budget.charged(), 160);
}

TEST(MemoryBudget, MemoryThatOthersHoldIsRefusedForNow) {
  MemoryBudget budget(100);
  MemoryCharge other(&budget);
  MemoryCharge charge(&budget);
  ASSERT_TRUE(other.set(50).ok());
  ASSERT_TRUE(charge.set(40).ok());
  const ApiStatus refused = charge.set(51);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().http_status, 503);
  EXPECT_GT(refused.error().retry_after_s, 0);
  EXPECT_EQ(charge.bytes(), 40) << "what it held before stays";
  EXPECT_EQ(charge.check(51).error().http_status, 503);
  other.release();
  EXPECT_TRUE(charge.check(51).ok());
  EXPECT_EQ(budget.used(), 40) << "a check takes nothing";
  EXPECT_TRUE(charge.set(51).ok());
  EXPECT_EQ(budget.refused_for_now(), 2);
  EXPECT_EQ(budget.refused_for_good(), 0);
}

TEST(MemoryBudget, MemoryAboveTheLimitIsRefusedForGood) {
  MemoryBudget budget(100);
  MemoryCharge charge(&budget);
  const ApiStatus refused = charge.set(101);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().http_status, 413);
  EXPECT_THAT(refused.error().message, HasSubstr("101 bytes"));
  EXPECT_THAT(refused.error().message, HasSubstr("up to 100"));
  EXPECT_EQ(charge.set(60, /*beside=*/60).error().http_status, 413) << "by two charges";
  EXPECT_EQ(charge.check(101).error().http_status, 413);
  EXPECT_EQ(budget.used(), 0);
  EXPECT_EQ(budget.refused_for_good(), 3);
}

TEST(MemoryBudget, RefusalsOfOptionalMemoryAreNotCounted) {
  MemoryBudget budget(100);
  MemoryCharge other(&budget);
  MemoryCharge charge(&budget);
  ASSERT_TRUE(other.set(50).ok());
  EXPECT_TRUE(charge.try_set(50));
  EXPECT_EQ(budget.used(), 100);
  for (const std::int64_t bytes : {51, 101}) EXPECT_FALSE(charge.try_set(bytes)) << bytes;
  EXPECT_EQ(charge.bytes(), 50) << "what it held before stays";
  EXPECT_EQ(budget.used(), 100);
  EXPECT_EQ(budget.refused_for_now() + budget.refused_for_good(), 0);
  EXPECT_TRUE(charge.try_set(10));
  EXPECT_EQ(budget.used(), 60);
  EXPECT_TRUE(MemoryCharge().try_set(INT64_MAX)) << "no budget";
}

TEST(MemoryBudget, LargeRequestsLeaveASixteenthToSmallOnes) {
  constexpr std::int64_t kMib = std::int64_t{1} << 20;
  MemoryBudget budget(16 * kMib);
  MemoryCharge large(&budget);
  ASSERT_TRUE(large.set(15 * kMib).ok());
  EXPECT_EQ(MemoryCharge(&budget).check(MemoryBudget::kSmallBytes + 1).error().http_status, 503);
  std::vector<MemoryCharge> small;
  for (std::int64_t held = 0; held < kMib; held += MemoryBudget::kSmallBytes) {
    ASSERT_TRUE(small.emplace_back(&budget).set(MemoryBudget::kSmallBytes).ok()) << held;
  }
  EXPECT_EQ(MemoryCharge(&budget).check(1).error().http_status, 503) << "the budget is full";
  small.clear();
  const ApiStatus refused = large.set(15 * kMib + 1);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().http_status, 413);
  EXPECT_THAT(refused.error().message, HasSubstr("up to 15728640"));
}

TEST(MemoryBudget, NoBudgetRefusesNothing) {
  MemoryCharge charge;
  EXPECT_TRUE(charge.set(INT64_MAX).ok());
  EXPECT_TRUE(charge.check(INT64_MAX).ok());
}

TEST(MemoryBudget, ThreadsNeverExceedTheLimitTogether) {
  MemoryBudget budget(1000);
  std::atomic<std::int64_t> held = 0;
  std::atomic<bool> passed = false;
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      MemoryCharge charge(&budget);
      for (int i = 0; i < 20000; ++i) {
        if (!charge.set(400).ok()) continue;
        if (held.fetch_add(400) + 400 > 1000) passed = true;
        held.fetch_sub(400);
        charge.release();
      }
    });
  }
  threads.clear();
  EXPECT_FALSE(passed);
  EXPECT_EQ(budget.used(), 0);
}

TEST(MemoryBudget, DefaultIsAQuarterOfTheAvailableMemory) {
  EXPECT_EQ(MemoryBudget::default_bytes(std::int64_t{16} << 30), std::int64_t{4} << 30);
  EXPECT_EQ(MemoryBudget::default_bytes(1), std::int64_t{64} << 20);
  EXPECT_EQ(MemoryBudget::default_bytes(INT64_MAX), std::int64_t{64} << 30);
}

}  // namespace
}  // namespace tessera
