// Catches: a forward that is begun twice or waits for a rank that nobody called; and ranks that continue although their
// graphs differ.
#include "tessera/engine/ranks/lockstep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <thread>

namespace tessera {
namespace {

using ::testing::HasSubstr;
constexpr std::chrono::seconds kLockstepLimit{20};

TEST(Lockstep, CallsTheOthersOnceAForward) {
  const std::shared_ptr<Lockstep> group = Lockstep::create(3, kLockstepLimit);
  std::array<int, 3> calls{};
  for (int r = 0; r < 3; ++r) group->when_awaited(r, [&calls, r] { ++calls[static_cast<std::size_t>(r)]; });
  EXPECT_FALSE(group->awaits(0));
  group->begin(1);
  EXPECT_THAT(calls, ::testing::ElementsAre(1, 0, 1));
  EXPECT_TRUE(group->awaits(0));
  EXPECT_FALSE(group->awaits(1));
  group->begin(0);
  group->begin(2);
  EXPECT_THAT(calls, ::testing::ElementsAre(1, 0, 1));
  for (int r = 0; r < 3; ++r) EXPECT_FALSE(group->awaits(r));
  group->when_awaited(1, nullptr);
  group->begin(2);
  EXPECT_THAT(calls, ::testing::ElementsAre(2, 0, 1));
  EXPECT_TRUE(group->awaits(1));
}

TEST(Lockstep, RanksWithOtherSizesFail) {
  const std::shared_ptr<Lockstep> group = Lockstep::create(2, kLockstepLimit);
  const auto agree = [&](int rank, std::int64_t largest) {
    const std::array<std::int64_t, 2> prefill{16, largest};
    const std::array<std::int64_t, 1> decode{1};
    return group->agree(rank, prefill, decode);
  };
  Status other;
  std::thread same([&] { other = agree(1, 64); });
  EXPECT_TRUE(agree(0, 64).ok());
  same.join();
  EXPECT_TRUE(other.ok());
  std::thread less([&] { other = agree(1, 32); });
  EXPECT_THAT(agree(0, 64).message(), HasSubstr("different sizes of graphs; rank 0 has 2 for prefills and 1 for"));
  less.join();
  EXPECT_EQ(other.code(), StatusCode::kFailedPrecondition);
}

TEST(Lockstep, ARankThatFailsCallsTheOthers) {
  const std::shared_ptr<Lockstep> group = Lockstep::create(2, kLockstepLimit);
  int calls = 0;
  group->when_awaited(0, [&] { ++calls; });
  group->communicator(1).abort("no memory");
  EXPECT_EQ(calls, 1);
  EXPECT_THAT(group->health().message(), HasSubstr("rank 1 of 2 left the group: no memory"));
}

// One rank comes to the meeting later than the group's limit allows, because its weights take longer to load.
TEST(Lockstep, AMeetingHasALimitOfItsOwn) {
  const std::shared_ptr<Lockstep> group = Lockstep::create(2, std::chrono::milliseconds(20));
  Status met;
  std::thread early([&] { met = group->meet(1, kLockstepLimit); });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_TRUE(group->meet(0, kLockstepLimit).ok());
  early.join();
  EXPECT_TRUE(met.ok()) << met.message();
  EXPECT_EQ(group->communicator(1).limit(), std::chrono::milliseconds(20));
  EXPECT_THAT(group->meet(0, std::chrono::milliseconds(20)).message(), HasSubstr("rank 1 of 2 did not come"));
}

TEST(Lockstep, ARankThatLeavesEndsTheGroup) {
  const std::shared_ptr<Lockstep> group = Lockstep::create(2, kLockstepLimit);
  EXPECT_TRUE(group->health().ok());
  group->communicator(1).abort("its engine ends");
  EXPECT_EQ(group->health().code(), StatusCode::kDeviceLost);
  EXPECT_THAT(group->health().message(), HasSubstr("rank 1 of 2 left the group: its engine ends"));
}

}  // namespace
}  // namespace tessera
