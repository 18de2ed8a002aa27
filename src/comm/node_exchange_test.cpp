// Catches: ranks on several nodes that get different bits than ranks on one node; a collective that uses the result of
// an earlier, aborted collective; a rank that waits for a lost node; and tensors of different shapes or types that are
// accepted.
//
// All nodes of a group run in this process. They are connected by TCP, like separate processes.
#include "tessera/comm/node_exchange.h"

#include <gmock/gmock.h>

#include <thread>

#include "tessera/comm/communicator.h"
#include "tessera/comm/testing/nodes.h"
#include "tessera/ir/testing/host_tensor.h"

namespace tessera::testing {
namespace {

using ir::DType;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

TensorView view_of(HostTensor& t) { return t.view(DeviceAddress{t.bytes.data()}); }

TensorView view_of(float& x) { return {.data = reinterpret_cast<std::byte*>(&x), .rank = 1, .dims = {1}}; }

void until_restarted(Communicator& rank) {
  while (!rank.status().ok()) std::this_thread::sleep_for(milliseconds(1));
}

struct NodesCase {
  int nodes;
  int ranks;
  DType dtype;
};

class NodeCollectives : public ::testing::TestWithParam<NodesCase> {};

TEST_P(NodeCollectives, SumsHaveTheBitsOfOneProcess) {
  const auto [nodes, ranks, dtype] = GetParam();
  const std::unique_ptr<Nodes> made = make_nodes(nodes, ranks);
  const std::vector<std::unique_ptr<Communicator>> threads = Communicator::create_group(ranks);
  for (const std::int64_t n : {0, 1, 257, 50'000}) {
    std::vector<HostTensor> x;
    for (int r = 0; r < ranks; ++r)
      x.push_back(random_tensor(dtype, {n}, static_cast<std::uint32_t>(r + 1), -100, 100));
    std::vector<HostTensor> expected = x;
    run_ranks(ranks, [&](int r) {
      const auto at = static_cast<std::size_t>(r);
      EXPECT_TRUE(threads[at]->all_reduce(view_of(expected[at])).ok());
    });
    run_ranks(ranks, [&](int r) {
      const Status status = made->rank(r).all_reduce(view_of(x[static_cast<std::size_t>(r)]));
      EXPECT_TRUE(status.ok()) << status.message();
    });
    for (const HostTensor& t : x) EXPECT_EQ(t.bytes, expected[0].bytes) << n;
  }
}

TEST_P(NodeCollectives, ColumnsAreGatheredInRankOrder) {
  const auto [nodes, ranks, dtype] = GetParam();
  const std::unique_ptr<Nodes> made = make_nodes(nodes, ranks);
  std::vector<HostTensor> x;
  std::vector<HostTensor> y;
  for (int r = 0; r < ranks; ++r) {
    x.push_back(random_tensor(dtype, {3, 5}, static_cast<std::uint32_t>(r + 1)));
    y.push_back(poisoned_tensor(dtype, {3, std::int64_t{5} * ranks}));
  }
  run_ranks(ranks, [&](int r) {
    const auto at = static_cast<std::size_t>(r);
    const Status status = made->rank(r).all_gather(view_of(x[at]), view_of(y[at]));
    EXPECT_TRUE(status.ok()) << status.message();
  });
  for (const HostTensor& t : y)
    for (std::int64_t i = 0; i < 3; ++i)
      for (std::int64_t j = 0; j < std::int64_t{5} * ranks; ++j)
        EXPECT_EQ(t.at(i * 5 * ranks + j), x[static_cast<std::size_t>(j / 5)].at(i * 5 + j % 5));
}

TEST_P(NodeCollectives, RowsHaveTheBitsOfOneProcess) {
  const auto [nodes, ranks, dtype] = GetParam();
  const std::unique_ptr<Nodes> made = make_nodes(nodes, ranks);
  const std::vector<std::unique_ptr<Communicator>> threads = Communicator::create_group(ranks);
  for (const std::int64_t rows : {0, 1, 3}) {
    const auto own = [&](std::int64_t n, int r) {
      return random_tensor(dtype, {n, 129}, static_cast<std::uint32_t>(10 * rows + r + 1), -100, 100);
    };
    run_ranks(ranks, [&](int r) {
      Communicator& alone = *threads[static_cast<std::size_t>(r)];
      HostTensor x = own(rows, r);
      HostTensor y = poisoned_tensor(dtype, {rows * ranks, 129});
      HostTensor expected = y;
      ASSERT_TRUE(alone.all_gather_rows(view_of(x), view_of(expected)).ok());
      ASSERT_TRUE(made->rank(r).all_gather_rows(view_of(x), view_of(y)).ok());
      EXPECT_EQ(y.bytes, expected.bytes) << "rank " << r;
      HostTensor all = own(rows * ranks, r);
      HostTensor sums = poisoned_tensor(dtype, {rows, 129});
      HostTensor expected_sums = sums;
      ASSERT_TRUE(alone.reduce_scatter(view_of(all), view_of(expected_sums)).ok());
      ASSERT_TRUE(made->rank(r).reduce_scatter(view_of(all), view_of(sums)).ok());
      EXPECT_EQ(sums.bytes, expected_sums.bytes) << "rank " << r;
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Groups, NodeCollectives,
                         ::testing::Values(NodesCase{2, 2, DType::kFloat32}, NodesCase{2, 4, DType::kBFloat16},
                                           NodesCase{3, 3, DType::kFloat16}, NodesCase{3, 6, DType::kFloat32}),
                         [](const auto& test) {
                           return std::to_string(test.param.nodes) + "x" +
                                  std::to_string(test.param.ranks / test.param.nodes) +
                                  std::string(ir::dtype_name(test.param.dtype));
                         });

TEST(NodeExchange, ManyCallsInARow) {
  const std::unique_ptr<Nodes> made = make_nodes(2, 4);
  run_ranks(4, [&](int r) {
    for (int i = 0; i < 300; ++i) {
      auto x = static_cast<float>(r + i);
      ASSERT_TRUE(made->rank(r).all_reduce(view_of(x)).ok());
      ASSERT_EQ(x, static_cast<float>(4 * i + 6));
    }
  });
}

// Any rank may end the group at any time. All ranks must then return, and the results of the next round must be
// correct.
TEST(NodeExchange, ARestartedGroupWorks) {
  constexpr int kRanks = 4;
  const std::unique_ptr<Nodes> made = make_nodes(2, kRanks);
  for (int round = 0; round < 40; ++round) {
    run_ranks(kRanks, [&](int r) {
      float x = 1;
      if (r == round % kRanks) {
        if (round % 3 == 0) std::this_thread::sleep_for(milliseconds(2));
        made->rank(r).abort("a fault");
      } else {
        const Status status = made->rank(r).all_reduce(view_of(x));
        EXPECT_EQ(status.code(), StatusCode::kCancelled);
        EXPECT_THAT(status.message(), HasSubstr("a fault"));
      }
    });
    for (int r = 0; r < kRanks; ++r) {
      // Waits until the rank's node knows that the group has ended.
      while (made->rank(r).status().ok()) std::this_thread::sleep_for(milliseconds(1));
    }
    ASSERT_TRUE(made->rank(0).restart().ok());
    run_ranks(kRanks, [&](int r) {
      until_restarted(made->rank(r));
      auto x = static_cast<float>(r);
      const Status status = made->rank(r).all_reduce(view_of(x));
      EXPECT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(x, 6.0F);
    });
  }
}

TEST(NodeExchange, ANodeThatDoesNotComeIsNamed) {
  const std::unique_ptr<Nodes> made = make_nodes(2, 2, milliseconds(400));
  float x = 1;
  const Status status = made->rank(0).all_reduce(view_of(x));
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
  EXPECT_THAT(status.message(), HasSubstr("node 1 of 2 (127.0.0.1:"));
  EXPECT_THAT(status.message(), HasSubstr("did not come to all_reduce within 0.4 s"));
}

TEST(NodeExchange, ANodeThatIsGoneReleasesTheOthers) {
  const std::unique_ptr<Nodes> made = make_nodes(3, 3);
  std::thread ends([&] {
    std::this_thread::sleep_for(milliseconds(50));
    made->groups[1]->end();
  });
  run_ranks(3, [&](int r) {
    if (r == 1) return;
    float x = 1;
    EXPECT_THAT(made->rank(r).all_reduce(view_of(x)).message(), HasSubstr("node 1 of 3"));
  });
  ends.join();
}

TEST(NodeExchange, RanksThatDisagreeGetAnError) {
  for (const std::int64_t others : {4, 16}) {
    const std::unique_ptr<Nodes> made = make_nodes(2, 2);
    run_ranks(2, [&](int r) {
      std::vector<float> x(16, 1.0F);
      const TensorView view{
          .data = reinterpret_cast<std::byte*>(x.data()), .rank = 1, .dims = {r == 0 ? std::int64_t{8} : others}};
      const Status status = made->rank(r).all_reduce(view);
      EXPECT_THAT(status.message(),
                  HasSubstr("rank 0 is in all_reduce with 8 elements f32, rank 1 in all_reduce with " +
                            std::to_string(others)));
    });
  }
}

// Node 0 adds the tensors. The two ranks whose tensors differ in shape are both on the other node.
TEST(NodeExchange, RanksOfOneNodeThatDisagreeGetAnError) {
  const std::unique_ptr<Nodes> made = make_nodes(2, 4);
  run_ranks(4, [&](int r) {
    std::vector<float> x(16, 1.0F);
    const TensorView view{.data = reinterpret_cast<std::byte*>(x.data()), .rank = 1, .dims = {r == 3 ? 16 : 8}};
    EXPECT_THAT(made->rank(r).all_reduce(view).message(),
                HasSubstr("rank 2 is in all_reduce with 8 elements f32, rank 3 in all_reduce with 16"));
  });
}

// The ranks call different collectives with equal shapes.
TEST(NodeExchange, RanksInDifferentCallsGetAnError) {
  const std::unique_ptr<Nodes> made = make_nodes(2, 2);
  run_ranks(2, [&](int r) {
    std::vector<float> x(8, 1.0F);
    std::vector<float> y(16);
    const TensorView in{.data = reinterpret_cast<std::byte*>(x.data()), .rank = 2, .dims = {2, 4}};
    const TensorView out{.data = reinterpret_cast<std::byte*>(y.data()), .rank = 2, .dims = {2, 8}};
    const Status status = r == 0 ? made->rank(r).all_reduce(in) : made->rank(r).all_gather(in, out);
    EXPECT_THAT(status.message(), HasSubstr("rank 1 in all_gather"));
  });
}

TEST(NodeExchange, AnUnreadableFrameIsAnError) {
  const std::unique_ptr<Nodes> made = make_nodes(2, 2);
  NodeExchange exchange(made->groups[0], 2);
  std::vector<std::byte> little(8);
  EXPECT_EQ(exchange.take_tensors(1, little).code(), StatusCode::kDataLoss);
  EXPECT_EQ(exchange.take_result(little).code(), StatusCode::kDataLoss);
  std::vector<std::byte> nonsense(200, std::byte{0xff});
  std::fill(nonsense.begin(), nonsense.begin() + 8, std::byte{0});  // sets the epoch to 0, which is the current epoch
  ASSERT_TRUE(exchange.take_tensors(1, nonsense).ok());
  std::vector<std::byte> again(200);
  EXPECT_EQ(exchange.take_tensors(1, again).code(), StatusCode::kDataLoss) << "the first is still to be read";
  float x = 1;
  std::vector<TensorView> tensors = {view_of(x), {}};
  std::vector<std::string_view> calls = {"all_reduce", ""};
  EXPECT_EQ(exchange.collect(tensors, calls, milliseconds(1000)).code(), StatusCode::kInternal);
}

// Makes the payload of a frame that carries one tensor. It consists of the frame's header and the tensor's only value.
std::vector<std::byte> tensors_of(std::uint64_t number, float value) {
  struct {
    std::uint64_t epoch = 0;
    std::uint64_t number;
    std::uint32_t call = 0;
    std::uint32_t dtype = static_cast<std::uint32_t>(DType::kFloat32);
    std::int32_t rank = 1;
    std::uint32_t tensors = 1;
    std::array<std::int64_t, kMaxRank> dims{1};
  } const head{.number = number};
  std::vector<std::byte> bytes(sizeof(head) + sizeof(value));
  std::memcpy(bytes.data(), &head, sizeof(head));
  std::memcpy(bytes.data() + sizeof(head), &value, sizeof(value));
  return bytes;
}

TEST(NodeExchange, TensorsBeingAddedAreNotOverwritten) {
  const std::unique_ptr<Nodes> made = make_nodes(2, 2);
  NodeExchange exchange(made->groups[0], 2);
  float x = 1;
  std::vector<TensorView> tensors = {view_of(x), {}};
  std::vector<std::string_view> calls = {"all_reduce", ""};
  std::vector<std::byte> first = tensors_of(1, 5.0F);
  ASSERT_TRUE(exchange.take_tensors(1, first).ok());
  ASSERT_TRUE(exchange.collect(tensors, calls, milliseconds(1000)).ok());
  std::vector<std::byte> early = tensors_of(2, 6.0F);
  EXPECT_EQ(exchange.take_tensors(1, early).code(), StatusCode::kDataLoss) << "the first is still in use";
  EXPECT_EQ(*tensors[1].as<float>(), 5.0F);
  ASSERT_TRUE(exchange.spread(tensors[0]).ok());
  std::vector<std::byte> second = tensors_of(2, 6.0F);
  ASSERT_TRUE(exchange.take_tensors(1, second).ok());
  ASSERT_TRUE(exchange.collect(tensors, calls, milliseconds(1000)).ok());
  EXPECT_EQ(*tensors[1].as<float>(), 6.0F);
}

// If an exception ends a rank's thread, the rank's communicator is destroyed, but frames still arrive over the node's
// connection.
TEST(NodeExchange, FramesForDestroyedRanksAreDropped) {
  const std::unique_ptr<Nodes> made = make_nodes(2, 2);
  made->ranks[1].reset();
  while (made->rank(0).status().ok()) std::this_thread::sleep_for(milliseconds(1));
  ASSERT_TRUE(made->rank(0).restart().ok());
  made->rank(0).abort("a fault");
  float x = 1;
  EXPECT_TRUE(made->groups[0]->send(1, FrameKind::kResult, std::array{std::as_bytes(std::span(&x, 1))}).ok());
  made->groups[1]->end();  // returns once it has handled all frames
}

TEST(NodeExchange, OnlyNodeZeroRestartsTheGroup) {
  const std::unique_ptr<Nodes> made = make_nodes(2, 2);
  const std::uint64_t epoch = 1;
  ASSERT_TRUE(made->groups[1]->send(0, FrameKind::kRestart, std::array{std::as_bytes(std::span(&epoch, 1))}).ok());
  while (made->rank(0).status().ok()) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_THAT(made->rank(0).status().message(), HasSubstr("it sent a restart, which node 0 alone does"));
}

}  // namespace
}  // namespace tessera::testing
