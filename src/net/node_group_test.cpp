// Catches: nodes that form a group although their settings differ; an error that does not name the difference; an
// endless wait; a loss of a node that goes unnoticed; a foreign client that disturbs a start.
#include "tessera/net/node_group.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <future>
#include <new>

#include "tessera/net/testing/free_port.h"

namespace tessera {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Joined = Result<std::shared_ptr<NodeGroup>>;

NodeHello hello(int nodes, int node) {
  return {.nodes = nodes,
          .node = node,
          .version = "1.0",
          .model = "m",
          .options = {{"tp_size", "2"}, {"cuda_graph_bs", ""}}};
}

NodeGroupOptions options(std::uint16_t port, int join_ms = 10'000, int silence_ms = 5'000) {
  return {.address = {"127.0.0.1", port}, .join_limit = milliseconds(join_ms), .silence = milliseconds(silence_ms)};
}

// Joins all nodes at the same time, each with its own hello.
std::vector<Joined> join(const std::vector<NodeHello>& hellos, const NodeGroupOptions& how) {
  std::vector<std::future<Joined>> joining;
  for (const NodeHello& own : hellos)
    joining.push_back(std::async(std::launch::async, [own, how] { return NodeGroup::join(own, how); }));
  std::vector<Joined> joined;
  for (std::future<Joined>& one : joining) joined.push_back(one.get());
  return joined;
}

TEST(NodeGroup, TheNameOfANodeHasItsRanks) {
  NodeGroupOptions how = options(testing::free_port());
  how.ranks = 4;
  const std::vector<Joined> joined = join({hello(2, 0), hello(2, 1)}, how);
  for (const Joined& node : joined) ASSERT_TRUE(node.ok()) << node.status().to_string();
  EXPECT_THAT((*joined[0])->name(1), HasSubstr("; ranks 2 to 3)"));
  EXPECT_THAT((*joined[1])->name(0), HasSubstr("; ranks 0 to 1)"));
}

TEST(NodeGroup, FramesGoBothWays) {
  const std::vector<Joined> joined = join({hello(3, 0), hello(3, 1), hello(3, 2)}, options(testing::free_port()));
  std::vector<std::promise<std::string>> got(3);
  for (const Joined& one : joined) {
    ASSERT_TRUE(one.ok()) << one.status().to_string();
    NodeGroup& group = **one;
    const auto answer = [&group, &got](int from, std::vector<std::byte>& payload) -> Status {
      const std::string text(reinterpret_cast<const char*>(payload.data()), payload.size());
      if (group.leads()) {
        got[static_cast<std::size_t>(from)].set_value(text);
        return ok_status();
      }
      const std::string said = text + " of " + std::to_string(group.node());
      return group.send(0, FrameKind::kAnswer, std::array{std::as_bytes(std::span(said))});
    };
    group.take(FrameKind::kOrder, answer);
    group.take(FrameKind::kAnswer, answer);
    group.start();
  }
  const std::string order = "answer";
  ASSERT_TRUE((*joined[0])->send_to_all(FrameKind::kOrder, std::array{std::as_bytes(std::span(order))}).ok());
  EXPECT_EQ(got[1].get_future().get(), "answer of 1");
  EXPECT_EQ(got[2].get_future().get(), "answer of 2");
}

// The refused node ends at once. Node 0 waits for a matching node until its own time limit has passed.
TEST(NodeGroup, BothSidesNameTheDifference) {
  NodeHello version = hello(2, 1);
  version.version = "1.1";
  NodeHello protocol = hello(2, 1);
  protocol.protocol = kNodeProtocol + 1;
  NodeHello model = hello(2, 1);
  model.model = "n";
  NodeHello option = hello(2, 1);
  option.options[1].value = "1,2";
  NodeHello unknown = hello(2, 1);
  unknown.options[1].name = "new";
  const std::vector<std::pair<NodeHello, std::string>> wrong = {
      {version, "the program's version: 1.0 on node 0 and 1.1 on node 1"},
      {protocol,
       fmt::format("the protocol between nodes is {} on node 0 and {} on another", kNodeProtocol, kNodeProtocol + 1)},
      {hello(3, 1), "nnodes: 2 on node 0 and 3 on node 1"},
      {hello(2, 2), "node_rank: 2 is not accepted; 1 to 1 follow node 0"},
      {model, "node 1 has another model than node 0"},
      {option, "cuda_graph_bs: not set on node 0 and 1,2 on node 1"},
      {unknown, "the nodes have different options"},
  };
  for (const auto& [other, words] : wrong) {
    const std::vector<Joined> joined = join({hello(2, 0), other}, options(testing::free_port(), 500));
    EXPECT_EQ(joined[0].status().code(), StatusCode::kNotFound) << words;
    EXPECT_THAT(joined[0].status().message(), AllOf(HasSubstr("node 1 of 2 did not come"), HasSubstr(words)));
    EXPECT_EQ(joined[1].status().code(), StatusCode::kInvalidArgument) << words;
    EXPECT_THAT(joined[1].status().message(), AllOf(HasSubstr("refuses: "), HasSubstr(words)));
  }
}

TEST(NodeGroup, AMissingNodeIsNamed) {
  const std::uint16_t port = testing::free_port();
  const std::vector<Joined> joined = join({hello(3, 0), hello(3, 2)}, options(port, 300));
  EXPECT_EQ(joined[0].status().code(), StatusCode::kNotFound);
  EXPECT_THAT(joined[0].status().message(),
              HasSubstr("node 1 of 3 did not come to 127.0.0.1:" + std::to_string(port) + " within 0.3 s"));
  EXPECT_THAT(joined[1].status().message(),
              AllOf(HasSubstr("refuses: node 1 of 3 did not come"), HasSubstr("within 0.3 s")));
  const Joined alone = NodeGroup::join(hello(2, 1), options(testing::free_port(), 300));
  EXPECT_THAT(alone.status().message(),
              AllOf(HasSubstr("node 1 of 2 found no node 0 within 0.3 s"), HasSubstr("Connection refused")));
}

// Returns a connection to node 0 that has sent its hello and does nothing more.
Socket hello_to(std::uint16_t port, const NodeHello& own) {
  Socket socket = connect_until({"127.0.0.1", port}, NetClock::now() + milliseconds(5000)).value();
  const std::vector<std::byte> said = pack_hello(own);
  EXPECT_TRUE(
      send_frame(socket, FrameKind::kHello, std::array{std::span<const std::byte>(said)}, milliseconds(1000)).ok());
  return socket;
}

// Connections are accepted in the order in which they were made. So node 0 accepts the first process that claims to be
// node 1, and refuses the second.
TEST(NodeGroup, ASecondNodeForOnePlaceIsRefused) {
  const std::uint16_t port = testing::free_port();
  std::future<Joined> leader =
      std::async(std::launch::async, [&] { return NodeGroup::join(hello(3, 0), options(port)); });
  const Socket first = hello_to(port, hello(3, 1));
  EXPECT_THAT(NodeGroup::join(hello(3, 1), options(port)).status().message(),
              HasSubstr("another node with rank 1 has already joined"));
  EXPECT_TRUE(NodeGroup::join(hello(3, 2), options(port)).ok());
  EXPECT_TRUE(leader.get().ok());
}

TEST(NodeGroup, ARestartedNodeTakesItsPlace) {
  const std::uint16_t port = testing::free_port();
  std::future<Joined> leader =
      std::async(std::launch::async, [&] { return NodeGroup::join(hello(3, 0), options(port)); });
  hello_to(port, hello(3, 1));  // the returned socket is destroyed, so the connection closes
  std::future<Joined> again =
      std::async(std::launch::async, [&] { return NodeGroup::join(hello(3, 1), options(port)); });
  EXPECT_TRUE(NodeGroup::join(hello(3, 2), options(port)).ok());
  EXPECT_TRUE(again.get().ok());
  EXPECT_TRUE(leader.get().ok());
}

// Both ends send more than a connection buffers, so they would block each other if an end read only after its sends.
TEST(NodeGroup, BothEndsMaySendMuchAtOnce) {
  std::vector<Joined> joined = join({hello(2, 0), hello(2, 1)}, options(testing::free_port(), 10'000, 3'000));
  std::array<std::promise<std::size_t>, 2> got;
  for (std::size_t n = 0; n < 2; ++n) {
    (*joined[n])->take(FrameKind::kOrder, [&got, n](int, std::vector<std::byte>& payload) {
      got[n].set_value(payload.size());
      return ok_status();
    });
    (*joined[n])->start();
  }
  const std::vector<std::byte> much(32 << 20);
  const std::array parts = {std::span<const std::byte>(much)};
  std::future<Status> other =
      std::async(std::launch::async, [&] { return (*joined[1])->send(0, FrameKind::kOrder, parts); });
  EXPECT_TRUE((*joined[0])->send(1, FrameKind::kOrder, parts).ok());
  EXPECT_TRUE(other.get().ok());
  for (std::promise<std::size_t>& one : got) EXPECT_EQ(one.get_future().get(), much.size());
  joined.clear();
}

TEST(NodeGroup, AForeignClientIsIgnored) {
  const std::uint16_t port = testing::free_port();
  std::future<Joined> leader =
      std::async(std::launch::async, [&] { return NodeGroup::join(hello(2, 0), options(port)); });
  Socket stranger = connect_until({"127.0.0.1", port}, NetClock::now() + milliseconds(5000)).value();
  const std::string asks = "GET / HTTP/1.1\r\n\r\n";
  ASSERT_TRUE(stranger.send(std::array{std::as_bytes(std::span(asks))}, milliseconds(1000)).ok());
  EXPECT_TRUE(NodeGroup::join(hello(2, 1), options(port)).ok());
  EXPECT_TRUE(leader.get().ok());
}

// A hello that does not match may come from anybody, so node 0 refuses it and keeps waiting for its own nodes.
TEST(NodeGroup, AForeignHelloDoesNotEndTheStart) {
  const std::uint16_t port = testing::free_port();
  std::future<Joined> leader =
      std::async(std::launch::async, [&] { return NodeGroup::join(hello(2, 0), options(port)); });
  NodeHello model = hello(2, 1);
  model.model = "n";
  NodeHello protocol = hello(2, 1);
  protocol.protocol = 99;
  for (const NodeHello& foreign : {model, protocol, hello(2, 7), hello(5, 1)})
    EXPECT_THAT(NodeGroup::join(foreign, options(port)).status().message(), HasSubstr("refuses: "));
  const Joined follower = NodeGroup::join(hello(2, 1), options(port));
  EXPECT_TRUE(follower.ok()) << follower.status().to_string();
  const Joined led = leader.get();
  EXPECT_TRUE(led.ok()) << led.status().to_string();
}

// There are many silent connections. If node 0 waited for each of them in turn, node 1 would give up before its turn
// came.
TEST(NodeGroup, SilentStrangersDoNotDelayTheStart) {
  const std::uint16_t port = testing::free_port();
  std::future<Joined> leader =
      std::async(std::launch::async, [&] { return NodeGroup::join(hello(2, 0), options(port)); });
  std::vector<Socket> silent;
  for (int i = 0; i < 40; ++i)
    silent.push_back(connect_until({"127.0.0.1", port}, NetClock::now() + milliseconds(5000)).value());
  EXPECT_TRUE(NodeGroup::join(hello(2, 1), options(port)).ok());
  EXPECT_TRUE(leader.get().ok());
}

// A group of two nodes. Node n sets ends[n] to the Status with which it is told that the other node has ended.
struct Two {
  std::array<std::promise<Status>, 2> ends;
  std::vector<Joined> joined;

  explicit Two(int silence_ms)
      : joined(join({hello(2, 0), hello(2, 1)}, options(testing::free_port(), 10'000, silence_ms))) {
    for (std::size_t n = 0; n < 2; ++n)
      group(n).when_ended([this, n](int, const Status& why) { ends[n].set_value(why); });
  }
  NodeGroup& group(std::size_t n) { return **joined[n]; }
};

TEST(NodeGroup, AnOrderlyEndIsNoLoss) {
  Two two(5'000);
  two.group(0).start();
  two.group(1).start();
  two.group(0).end();
  EXPECT_TRUE(two.ends[1].get_future().get().ok());
}

TEST(NodeGroup, LeavingWithAnErrorTellsTheLoss) {
  const std::vector<Joined> joined = join({hello(3, 0), hello(3, 1), hello(3, 2)}, options(testing::free_port()));
  NodeGroup& leader = **joined[0];
  leader.when_ended([&leader](int node, const Status&) { leader.leave(device_lost("node " + std::to_string(node))); });
  std::promise<Status> end;
  (*joined[2])->when_ended([&end](int, const Status& why) { end.set_value(why); });
  for (const Joined& one : joined) (*one)->start();
  (*joined[1])->end();
  const Status why = end.get_future().get();
  EXPECT_EQ(why.code(), StatusCode::kDeviceLost);
  EXPECT_THAT(why.message(), AllOf(HasSubstr("node 0 of 3 (127.0.0.1:"), HasSubstr("is gone: node 1")));
}

// In this test node 0 leaves with an error when another node ends. But if node 0 itself ends first, the other nodes
// must still see an orderly end.
TEST(NodeGroup, AnOrderlyEndIsNoLossOfOtherNodes) {
  for (int round = 0; round < 50; ++round) {
    const std::vector<Joined> joined = join({hello(3, 0), hello(3, 1), hello(3, 2)}, options(testing::free_port()));
    NodeGroup& leader = **joined[0];
    leader.when_ended([&leader](int, const Status&) { leader.leave(device_lost("a node is gone")); });
    std::array<std::promise<Status>, 3> ends;
    for (std::size_t n = 1; n < 3; ++n)
      (*joined[n])->when_ended([&ends, n](int, const Status& why) { ends[n].set_value(why); });
    for (const Joined& one : joined) (*one)->start();
    leader.end();
    for (std::size_t n = 1; n < 3; ++n) EXPECT_TRUE(ends[n].get_future().get().ok()) << round;
  }
}

TEST(NodeGroup, AnEndIsReportedAgainIfMemoryRunsOut) {
  Two two(5'000);
  std::promise<Status> told;
  two.group(1).when_ended([&told](int, const Status& why) {
    if (why.message() != "a node is gone") throw std::bad_alloc();
    told.set_value(why);
  });
  std::promise<void> next;
  two.group(1).when_ended([&next](int, const Status&) { next.set_value(); });
  two.group(0).start();
  two.group(1).start();
  two.group(0).leave(device_lost("a fault"));
  EXPECT_EQ(told.get_future().get().code(), StatusCode::kDeviceLost);
  next.get_future().get();
}

TEST(NodeGroup, ASilentNodeIsLost) {
  Two two(400);
  two.group(0).start();  // the other node's thread, which would send heartbeats, does not run
  const Status why = two.ends[0].get_future().get();
  EXPECT_EQ(why.code(), StatusCode::kDeviceLost);
  EXPECT_THAT(why.message(), AllOf(HasSubstr("node 1 of 2 (127.0.0.1:"), HasSubstr("the node sent nothing for 0.4 s")));
  const std::string text = "x";
  EXPECT_EQ(two.group(0).send(1, FrameKind::kOrder, std::array{std::as_bytes(std::span(text))}).code(),
            StatusCode::kDeviceLost);
  two.group(1).start();
  EXPECT_EQ(two.ends[1].get_future().get().code(), StatusCode::kDeviceLost);
}

// Heartbeats are sent four times within the allowed silence, so a busy machine may miss three of them.
TEST(NodeGroup, SignsOfLifePreventALoss) {
  Two two(2'000);
  two.group(0).start();
  two.group(1).start();
  std::future<Status> end = two.ends[0].get_future();
  EXPECT_EQ(end.wait_for(milliseconds(3000)), std::future_status::timeout) << end.get().message();
}

TEST(NodeGroup, AnUnhandledMessageEndsTheConnection) {
  Two two(5'000);
  two.group(0).start();
  two.group(1).start();
  const std::string text = "x";
  ASSERT_TRUE(two.group(1).send(0, FrameKind::kOrder, std::array{std::as_bytes(std::span(text))}).ok());
  EXPECT_THAT(two.ends[0].get_future().get().message(), HasSubstr("kind 6, which this node does not expect"));
  EXPECT_EQ(two.ends[1].get_future().get().code(), StatusCode::kDeviceLost);
}

}  // namespace
}  // namespace tessera
