// Tests the claim that an engine must hold on a device to run kernels whose blocks wait for one another. Catches: two
// engines that hold the claim on one device at once; an engine that holds the claim but does not get it for another
// kernel; a claim that outlives its engine.
#include "tessera/ops/contract/device_claims.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace tessera {
namespace {

TEST(DeviceClaims, ADeviceBelongsToItsOwnerWhileClaimed) {
  DeviceClaims claims;
  const int one = 1;
  const int other = 2;
  std::shared_ptr<const DeviceClaim> first = claims.take(0, &one, "layers");
  std::shared_ptr<const DeviceClaim> second = claims.take(0, &one, "layers");
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(claims.take(0, &other, "layers"), nullptr);
  EXPECT_NE(claims.take(1, &other, "layers"), nullptr) << "another device is another claim";
  first.reset();
  EXPECT_EQ(claims.take(0, &other, "layers"), nullptr) << "the owner's second size still runs there";
  second.reset();
  const std::shared_ptr<const DeviceClaim> after = claims.take(0, &other, "layers");
  EXPECT_NE(after, nullptr);
  EXPECT_EQ(claims.take(0, &one, "layers"), nullptr);
}

TEST(DeviceClaims, OneOfSeveralConcurrentOwnersGetsTheDevice) {
  DeviceClaims claims;
  constexpr std::size_t kOwners = 8;
  std::vector<int> owners(kOwners);
  std::vector<std::shared_ptr<const DeviceClaim>> given(kOwners);
  std::atomic<bool> begin = false;
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kOwners; ++i)
    threads.emplace_back([&, i] {
      while (!begin) std::this_thread::yield();
      given[i] = claims.take(0, &owners[i], "layers");
    });
  begin = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(std::count(given.begin(), given.end(), nullptr), kOwners - 1);
}

}  // namespace
}  // namespace tessera
