// Catches: a node that continues although another node was told to stop; a node that leaves while another node has
// requests; and a node that waits forever for a lost node.
//
// All nodes are in this process, each with its own side of the connections.
#include "tessera/engine/ranks/common_end.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <future>

#include "tessera/comm/testing/nodes.h"

namespace tessera {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct Group {
  explicit Group(int nodes) : ends(testing::join_nodes_here(nodes)) {
    for (const std::shared_ptr<NodeGroup>& end : ends) {
      of_node.push_back(std::make_unique<CommonEnd>(*end));
      end->start();
    }
  }
  ~Group() {
    for (const std::shared_ptr<NodeGroup>& end : ends) end->end();
  }
  std::future<bool> leave(std::size_t node, milliseconds limit = seconds(20)) {
    return std::async(std::launch::async, [this, node, limit] { return of_node[node]->leave_together(limit); });
  }
  static bool leaves_soon(std::future<bool>& leaving) {
    return leaving.wait_for(seconds(10)) == std::future_status::ready;
  }

  std::vector<std::shared_ptr<NodeGroup>> ends;
  std::vector<std::unique_ptr<CommonEnd>> of_node;
};

TEST(CommonEnd, ANodeThatStopsTellsAllOthers) {
  for (const int first : {0, 2}) {
    Group group(3);
    std::array<std::promise<int>, 3> told;
    for (std::size_t node = 0; node < 2; ++node)
      group.of_node[node]->when_told([&told, node](int by) { told[node].set_value(by); });
    if (first == 0) group.of_node[2]->when_told([&told](int by) { told[2].set_value(by); });
    group.of_node[static_cast<std::size_t>(first)]->tell();
    group.of_node[static_cast<std::size_t>(first)]->tell();  // a second call has no effect
    for (int node = 0; node < 3; ++node) {
      if (node == first) continue;
      std::future<int> by = told[static_cast<std::size_t>(node)].get_future();
      ASSERT_EQ(by.wait_for(seconds(10)), std::future_status::ready) << node;
      EXPECT_EQ(by.get(), first);
    }
  }
}

TEST(CommonEnd, ReportsAnEndThatCameBeforeTheCallback) {
  Group group(2);
  group.of_node[0]->tell();
  std::promise<int> asked_late;
  std::future<int> by = asked_late.get_future();
  group.of_node[1]->when_told([&](int node) { asked_late.set_value(node); });
  ASSERT_EQ(by.wait_for(seconds(10)), std::future_status::ready);
  EXPECT_EQ(by.get(), 0);
}

TEST(CommonEnd, NoNodeLeavesWhileAnotherHasRequests) {
  Group group(3);
  std::future<bool> first = group.leave(1);
  std::future<bool> second = group.leave(0);
  EXPECT_EQ(first.wait_for(milliseconds(200)), std::future_status::timeout);
  EXPECT_EQ(second.wait_for(milliseconds(1)), std::future_status::timeout);
  EXPECT_TRUE(group.leave(2).get());
  EXPECT_TRUE(first.get());
  EXPECT_TRUE(second.get());
}

TEST(CommonEnd, ANodeThatIsGoneIsNotAwaited) {
  Group group(3);
  std::future<bool> first = group.leave(1);
  std::future<bool> second = group.leave(0);
  group.ends[2]->end();
  ASSERT_TRUE(Group::leaves_soon(second));
  EXPECT_FALSE(second.get());
  ASSERT_TRUE(Group::leaves_soon(first));
  EXPECT_FALSE(first.get());
}

TEST(CommonEnd, AStopThatCannotBeReadEndsTheConnection) {
  Group group(2);
  ASSERT_TRUE(group.ends[1]->send(0, FrameKind::kStop, {}).ok());
  EXPECT_FALSE(group.leave(0).get());
}

TEST(CommonEnd, ALimitAndASecondSignalEndTheWait) {
  Group group(2);
  EXPECT_FALSE(group.leave(0, milliseconds(50)).get());
  Group other(2);
  std::future<bool> waiting = other.leave(1);
  EXPECT_EQ(waiting.wait_for(milliseconds(50)), std::future_status::timeout);
  other.of_node[1]->give_up();
  ASSERT_TRUE(Group::leaves_soon(waiting));
  EXPECT_FALSE(waiting.get());
}

}  // namespace
}  // namespace tessera
