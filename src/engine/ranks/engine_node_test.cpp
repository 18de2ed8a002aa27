// Catches: nodes that start together although they would compute different values; an error that does not name the
// difference; a node that ends because it cannot carry out a command; a node that is left running.
#include "tessera/engine/ranks/engine_node.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tessera/base/testing/leaves_no_thread.h"
#include "tessera/base/testing/paths.h"
#include "tessera/device/cpu/cpu_device.h"
#include "tessera/net/testing/free_port.h"
#include "tessera/ops/built_in_ops.h"
#include "tessera/runner/ranks/rank_order.h"
#include "tessera/runner/ranks/rank_wire.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

Result<std::unique_ptr<Device>> create_narrow(const DeviceChoice& /*choice*/) {
  std::unique_ptr<Device> device = TRY(CpuDevice::create({.threads = 1}));
  return device;
}

// Returns a registry with the device "narrow", a CPU of one thread.
std::shared_ptr<Registry> narrow_registry() {
  static const Backend narrow{.create_device = create_narrow, .kernels = cpu_kernels};
  auto registry = std::make_shared<Registry>(built_in_registry());
  EXPECT_TRUE(registry->devices
                  .add({.name = "narrow", .takes_choice = true, .load = [] { return Result<const Backend*>(&narrow); }})
                  .ok());
  return registry;
}

// Returns the options of node 0 of two.
EngineOptions options_of_node_0() {
  EngineOptions options{.registry = narrow_registry(),
                        .model_path = testing::data_path("goldens/llama"),
                        .device = "narrow",
                        .tp_size = 2,
                        .dtype = "float32"};
  options.nnodes = 2;
  options.rank_timeout_s = 20;
  options.context_length = 64;
  options.chunked_prefill_size = 32;
  options.max_running_requests = 4;
  options.page_size = 8;
  options.graphs.piecewise_tokens = {8, 32};
  options.graphs.decode_batches = {1, 2};
  return options;
}
EngineOptions options_of_node_1(EngineOptions leads) {
  leads.node_rank = 1;
  return leads;
}

NodeHello hello_of(const EngineOptions& options) {
  const std::unique_ptr<Device> device = create_narrow({}).value();
  return node_hello(options, device->properties()).value();
}
std::string difference(const EngineOptions& leads, const EngineOptions& follows) {
  return check_hello(hello_of(leads), hello_of(follows)).message();
}

// The plugins' operators and passes decide what a node computes, so they must be equal.
TEST(NodesThatDiffer, NameTheirPlugins) {
  const EngineOptions without = options_of_node_0();
  const std::shared_ptr<Registry> registry = narrow_registry();
  registry->plugins.push_back({.name = "attention", .version = "1.2", .file = "", .content = {}, .library = nullptr});
  EngineOptions with = options_of_node_1(without);
  with.registry = registry;
  EXPECT_THAT(difference(without, with), HasSubstr("plugins: not set on node 0 and attention 1.2 (hash "));
  with.registry = without.registry;
  EXPECT_TRUE(check_hello(hello_of(without), hello_of(with)).ok());
}

// Each node quantises its own part of a checkpoint, so the option `quantization` must be equal on all nodes.
TEST(NodesThatDiffer, NameTheirQuantisationAtTheStart) {
  const EngineOptions leads = options_of_node_0();
  EngineOptions follows = options_of_node_1(leads);
  follows.quantization = "fp8";
  EXPECT_THAT(difference(leads, follows), HasSubstr("quantization: not set on node 0 and fp8"));
}

// Nodes whose draft layers differ would draft different tokens.
TEST(NodesThatDiffer, NameTheirDraftLayers) {
  EngineOptions leads = options_of_node_0();
  leads.max_running_requests = 8;
  leads.drafts.source = DraftSource::kEagle;
  leads.drafts.model_path = testing::data_path("drafts/llama-eagle3");
  leads.drafts.for_all_requests = true;
  EngineOptions follows = options_of_node_1(leads);
  follows.drafts.model_path = testing::data_path("drafts/qwen3-moe-eagle3");
  EXPECT_THAT(difference(leads, follows), HasSubstr("the draft layer: "));
  follows = options_of_node_1(leads);
  ++follows.drafts.layer_steps;
  EXPECT_THAT(difference(leads, follows), HasSubstr("speculative_num_steps: "));
  follows.drafts = {};
  EXPECT_THAT(difference(leads, follows), HasSubstr("speculative_algorithm: "));
}

// A node 0 that sends the test's messages.
class OrdersOfNode0 {
 public:
  OrdersOfNode0() {
    EngineOptions options = options_of_node_0();
    const std::uint16_t port = testing::free_port();
    options.dist_init_addr = "127.0.0.1:" + std::to_string(port);
    follower_ = std::async(std::launch::async, [follows = options_of_node_1(options)] {
      return follow_engine(follows, [](const std::shared_ptr<NodeGroup>&) { return ok_status(); });
    });
    nodes_ = NodeGroup::join(hello_of(options), {.address = {"127.0.0.1", port}}).value();
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

using FollowingNode = test::LeavesNoThread;

TEST_F(FollowingNode, AnswersOrdersThatItCannotCarryOut) {
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
