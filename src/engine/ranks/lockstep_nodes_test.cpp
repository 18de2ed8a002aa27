// Catches: a rank of another node that is not called or is called twice for a forward; calls that do not reach a third
// node; and a rank that sleeps although another node has failed or is lost.
//
// All nodes are in this process, each with its own side of the connections.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tessera/comm/testing/nodes.h"
#include "tessera/engine/ranks/lockstep.h"

namespace tessera {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
constexpr std::chrono::seconds kLimit{20};

// Nodes of two ranks each. Counts how often each rank is called.
struct GroupOfNodes {
  explicit GroupOfNodes(int nodes) : calls(static_cast<std::size_t>(2 * nodes)) {
    for (std::shared_ptr<NodeGroup>& ends : testing::join_nodes_here(nodes))
      of_node.push_back(Lockstep::create(2 * nodes, kLimit, std::move(ends)));
    for (int r = 0; r < 2 * nodes; ++r) of(r).when_awaited(r, [this, r] { ++calls[static_cast<std::size_t>(r)]; });
  }
  Lockstep& of(int rank) { return *of_node[static_cast<std::size_t>(rank / 2)]; }
  int calls_of(int rank) { return calls[static_cast<std::size_t>(rank)]; }

  std::vector<std::atomic<int>> calls;
  std::vector<std::shared_ptr<Lockstep>> of_node;
};

// Waits until a connection's thread has made the condition true. Returns false after ten seconds.
template <class Condition>
bool comes_to(const Condition& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!condition() && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(milliseconds(1));
  return condition();
}

TEST(LockstepNodes, AForwardCallsTheRanksOfAllNodes) {
  GroupOfNodes group(3);
  for (int forward = 1; forward <= 6; ++forward) {
    const int first = forward - 1;  // each rank is the first once
    group.of(first).begin(first);
    for (int r = 0; r < 6; ++r) {
      if (r == first) continue;
      EXPECT_TRUE(comes_to([&] { return group.of(r).awaits(r); })) << r;
      group.of(r).begin(r);
    }
    for (int r = 0; r < 6; ++r) EXPECT_FALSE(group.of(r).awaits(r));
  }
  for (int r = 0; r < 6; ++r) EXPECT_TRUE(comes_to([&] { return group.calls_of(r) == 5; })) << group.calls_of(r);
}

TEST(LockstepNodes, RanksThatBeginAtOnceBeginOneForward) {
  GroupOfNodes group(2);
  for (std::int64_t forward = 1; forward <= 200; ++forward) {
    testing::run_ranks(4, [&](int r) { group.of(r).begin(r); });
    for (int r = 0; r < 4; ++r) EXPECT_FALSE(group.of(r).awaits(r));
  }
}

TEST(LockstepNodes, ARankThatFailsCallsThoseOfAllNodes) {
  GroupOfNodes group(3);
  group.of(4).communicator(4).abort("no memory");
  for (const int r : {0, 1, 2, 3, 5}) {
    EXPECT_TRUE(comes_to([&] { return group.calls_of(r) >= 1; })) << r;
    EXPECT_EQ(group.of(r).health().code(), StatusCode::kDeviceLost);
    EXPECT_THAT(group.of(r).health().message(), HasSubstr("rank 4 of 6 left the group: no memory"));
  }
}

TEST(LockstepNodes, ANodeThatIsGoneCallsTheOthers) {
  GroupOfNodes group(3);
  group.of_node[1].reset();
  for (const int r : {0, 1, 4, 5}) {
    EXPECT_TRUE(comes_to([&] { return group.calls_of(r) >= 1 && !group.of(r).health().ok(); })) << r;
    EXPECT_THAT(group.of(r).health().message(), HasSubstr("node 1 of 3"));
  }
}

TEST(LockstepNodes, AForwardThatCannotComeNextEndsTheConnection) {
  std::vector<std::shared_ptr<NodeGroup>> ends = testing::join_nodes_here(2);
  const std::shared_ptr<Lockstep> own = Lockstep::create(2, kLimit, ends[0]);
  ends[1]->start();
  const std::int64_t far = 7;
  EXPECT_TRUE(ends[1]->send(0, FrameKind::kForward, std::array{std::as_bytes(std::span(&far, 1))}).ok());
  EXPECT_TRUE(comes_to([&] { return !own->health().ok(); }));
  EXPECT_THAT(own->health().message(),
              HasSubstr("it begins forward 7; accepted: forwards 1 to 1, because 0 have begun"));
  ends[1]->end();
}

}  // namespace
}  // namespace tessera
