// Tests faults of nodes. rank_faults_test.cpp tests faults of ranks.
//
// Catches: a wait for a node that has ended; a truncated message that is used; a rank that ends because it cannot carry
// out a command; nodes with different plugins; a node that is left running.
//
// The second node is a thread of this process, with its own end of the connection.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <future>
#include <thread>

#include "faulty_nodes.h"
#include "tessera/net/testing/free_port.h"
#include "tessera/runner/ranks/rank_order.h"
#include "tessera/runner/ranks/rank_wire.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Nodes;
using testing::request;
using testing::tokens;

EngineOptions options_for(int ranks) { return testing::faulty_options(testing::faulty_registry(), ranks); }

using NodeFaults = testing::FaultyRanks;

TEST_F(NodeFaults, ANodeThatLeavesEndsTheGroup) {
  Nodes nodes({}, options_for(2));
  ASSERT_TRUE(nodes.started.ok()) << nodes.started.to_string();
  EXPECT_TRUE(nodes.engine().health().ok());
  std::promise<void> told;
  nodes.engine().peers().when_lost([&told] { told.set_value(); });
  nodes.leave();
  EXPECT_EQ(told.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_THAT(nodes.engine().health().message(), HasSubstr("node 1 of 2"));
  EXPECT_THAT(tokens(nodes.engine()).status().message(), HasSubstr("; rank 1) is gone: the node left the group"));
  EXPECT_TRUE(nodes.end().ok());
}

// When one node is lost, the other nodes end too. They end with an error, so that the supervisors of their processes
// notice it.
TEST_F(NodeFaults, ANodeThatIsLostEndsTheOtherNodes) {
  constexpr int kNodes = 4;
  EngineOptions options = options_for(kNodes);
  options.nnodes = kNodes;
  options.dist_init_addr = "127.0.0.1:" + std::to_string(testing::free_port());
  std::array<std::promise<std::shared_ptr<NodeGroup>>, kNodes> groups;
  std::vector<std::future<Status>> followers;
  for (int node = 1; node < kNodes; ++node) {
    EngineOptions follows = options;
    follows.node_rank = node;
    follows.device = "faulty:" + std::to_string(node);
    followers.push_back(std::async(std::launch::async, [&groups, follows] {
      return follow_engine(follows, [&](std::shared_ptr<NodeGroup> nodes) {
        groups[static_cast<std::size_t>(follows.node_rank)].set_value(std::move(nodes));
        return ok_status();
      });
    }));
  }
  const Result<std::unique_ptr<Engine>> engine = Engine::create(options);
  ASSERT_TRUE(engine.ok()) << engine.status().to_string();
  groups[1].get_future().get()->leave();
  EXPECT_TRUE(followers[0].get().ok());
  for (const std::size_t other : {1, 2}) {
    ASSERT_EQ(followers[other].wait_for(std::chrono::seconds(30)), std::future_status::ready) << "it stays behind";
    const Status ended = followers[other].get();
    EXPECT_EQ(ended.code(), StatusCode::kDeviceLost);
    EXPECT_THAT(ended.message(), AllOf(HasSubstr("node 0 of 4 ("), HasSubstr("node 1 of 4 ("), HasSubstr("rank 1")));
  }
  EXPECT_THAT((*engine)->health().message(), HasSubstr("node 1 of 4"));
}

// Rank 0 is the last stage. Rank 1, on the other node, is the first stage.
EngineOptions stages() {
  EngineOptions options = options_for(1);
  options.pp_size = 2;
  return options;
}

TEST_F(NodeFaults, ANodeThatLeavesMidStepEndsAll) {
  Nodes nodes({}, stages());
  ASSERT_TRUE(nodes.started.ok()) << nodes.started.to_string();
  ASSERT_TRUE(nodes.engine().submit(request(9, 40)).ok());
  for (int step = 0; step < 5; ++step) ASSERT_TRUE(nodes.engine().step().ok());
  nodes.leave();
  Status failed;
  while (failed.ok()) failed = nodes.engine().step().status();
  EXPECT_EQ(failed.code(), StatusCode::kDeviceLost);
  EXPECT_THAT(failed.message(), AllOf(HasSubstr("node 1 of 2"), HasSubstr("rank 1")));
  EXPECT_TRUE(nodes.end().ok());
}

TEST_F(NodeFaults, ATruncatedValueEndsAll) {
  Nodes nodes({}, stages());
  ASSERT_TRUE(nodes.started.ok()) << nodes.started.to_string();
  ASSERT_TRUE(nodes.engine().submit(request(9, 40)).ok());
  for (int step = 0; step < 5; ++step) ASSERT_TRUE(nodes.engine().step().ok());
  const std::array<std::byte, 3> cut{};
  ASSERT_TRUE(nodes.group().send(0, FrameKind::kStageValue, std::array{std::span<const std::byte>(cut)}).ok());
  Status failed;
  while (failed.ok()) failed = nodes.engine().step().status();
  EXPECT_EQ(failed.code(), StatusCode::kDeviceLost);
  EXPECT_THAT(failed.message(), AllOf(HasSubstr("node 1 of 2"), HasSubstr("between stages in 3 bytes")));
  EXPECT_EQ(nodes.end().code(), StatusCode::kDeviceLost);
}

// The plugins' operators and passes decide what a node computes, so they must be equal.
TEST_F(NodeFaults, PluginsThatDifferAreNamed) {
  EngineOptions without = options_for(2);
  without.nnodes = 2;
  auto registry = std::make_shared<Registry>(built_in_registry());
  testing::add_faulty(*registry);
  registry->plugins.push_back({.name = "attention", .version = "1.2", .file = "", .content = {}, .library = nullptr});
  EngineOptions with = without;
  with.node_rank = 1;
  with.registry = registry;
  const std::unique_ptr<FakeDevice> device = FakeDevice::create({}, {.threads = 1}).value();
  const NodeHello leader = node_hello(without, device->properties()).value();
  EXPECT_THAT(check_hello(leader, node_hello(with, device->properties()).value()).message(),
              HasSubstr("plugins: not set on node 0 and attention 1.2 (hash "));
  with.registry = without.registry;
  EXPECT_TRUE(check_hello(leader, node_hello(with, device->properties()).value()).ok());
}

// Each node quantises its own part of a checkpoint, so the option `quantization` must be equal on all nodes.
TEST_F(NodeFaults, OtherQuantisationAtTheStartIsNamed) {
  EngineOptions leads = options_for(2);
  leads.nnodes = 2;
  EngineOptions follows = leads;
  follows.node_rank = 1;
  follows.quantization = "fp8";
  const std::unique_ptr<FakeDevice> device = FakeDevice::create({}, {.threads = 1}).value();
  const NodeHello leader = node_hello(leads, device->properties()).value();
  EXPECT_THAT(check_hello(leader, node_hello(follows, device->properties()).value()).message(),
              HasSubstr("quantization: not set on node 0 and fp8"));
}

// A node 0 that sends the test's messages.
class OrdersOfNode0 {
 public:
  OrdersOfNode0() {
    EngineOptions options = options_for(2);
    options.nnodes = 2;
    const std::uint16_t port = testing::free_port();
    options.dist_init_addr = "127.0.0.1:" + std::to_string(port);
    EngineOptions follows = options;
    follows.node_rank = 1;
    follows.device = "faulty:1";
    follower_ = std::async(std::launch::async, [follows] {
      return follow_engine(follows, [](const std::shared_ptr<NodeGroup>&) { return ok_status(); });
    });
    const std::unique_ptr<FakeDevice> device = FakeDevice::create({}, {.threads = 1}).value();
    nodes_ =
        NodeGroup::join(node_hello(options, device->properties()).value(), {.address = {"127.0.0.1", port}}).value();
    nodes_->take(FrameKind::kAnswer, [this](int, std::vector<std::byte>& payload) -> Status {
      answers_.front().set_value(TRY(unpack_answer(payload)).answer);
      return ok_status();
    });
    nodes_->take(FrameKind::kAbort, [](int, std::vector<std::byte>&) { return ok_status(); });
    nodes_->start();
  }
  ~OrdersOfNode0() {
    nodes_->end();
    EXPECT_TRUE(follower_.get().ok());
  }

  template <class Pack>
  RankAnswer answer(RankOrderKind kind, const Pack& pack) {
    answers_.clear();
    std::future<RankAnswer> answer = answers_.emplace_back().get_future();
    std::vector<std::byte> message;
    MessageWriter writer(message, static_cast<std::uint32_t>(kind), ++number_);
    pack(writer);
    writer.finish();
    EXPECT_TRUE(nodes_->send(1, FrameKind::kOrder, std::array{std::span<const std::byte>(message)}).ok());
    return answer.get();
  }
  RankAnswer answer(const RankOrder& order) {
    return answer(order.kind, [&](MessageWriter& writer) { pack_order(order, writer); });
  }

 private:
  std::future<Status> follower_;
  std::shared_ptr<NodeGroup> nodes_;
  std::vector<std::promise<RankAnswer>> answers_;  // answers to the command that was sent
  std::uint64_t number_ = 0;
};

TEST_F(NodeFaults, OrdersThatCannotBeCarriedOutAreErrors) {
  OrdersOfNode0 node_0;
  EXPECT_EQ(node_0.answer({.kind = RankOrderKind::kDiscard}).status.code(), StatusCode::kFailedPrecondition);
  const RankAnswer plan = node_0.answer({.kind = RankOrderKind::kPlan});
  ASSERT_TRUE(plan.status.ok()) << plan.status.to_string();
  MessageReader reader = MessageReader::open(plan.content).value();
  const RankLimits limits = unpack_limits(reader).value();
  const RankAnswer loaded =
      node_0.answer(RankOrderKind::kLoad, [&](MessageWriter& writer) { pack_limits(limits, writer); });
  ASSERT_TRUE(loaded.status.ok()) << loaded.status.to_string();
  EXPECT_THAT(node_0.answer({.kind = RankOrderKind::kDiscard}).status.message(), HasSubstr("no forward is in flight"));
  EXPECT_THAT(node_0.answer({.kind = RankOrderKind::kCollect}).status.message(), HasSubstr("no forward is in flight"));
  EXPECT_THAT(node_0.answer({.kind = RankOrderKind::kCaptureTower}).status.message(),
              HasSubstr("a model that has none"));
}

}  // namespace
}  // namespace tessera
