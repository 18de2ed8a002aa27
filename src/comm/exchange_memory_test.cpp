// The test compares the predicted memory of the exchanges between ranks with the memory in use. Catches: host memory
// for exchanged values that the prediction leaves out; memory that is predicted for values that take none; freed memory
// that is still reported; links between ranks, or mailboxes (buffers on a GPU into which other ranks write), that are
// predicted for ranks without them.
#include "tessera/comm/exchange_memory.h"

#include <gtest/gtest.h>

#include <thread>

#include "tessera/comm/communicator.h"
#include "tessera/comm/peer_sizes.h"
#include "tessera/comm/pipeline.h"
#include "tessera/comm/testing/nodes.h"

namespace tessera::testing {
namespace {

using Way = Pipeline::Way;

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr int kSteps = 3;

// Runs `steps` steps. In each step, sends and receives values of the sizes in `values`.
void run_steps(Pipeline& from, Pipeline& to, const std::vector<std::int64_t>& values, int steps) {
  for (int step = 0; step < steps; ++step)
    for (const std::int64_t bytes : values) {
      std::vector<std::byte> value(static_cast<std::size_t>(bytes));
      ASSERT_TRUE(from.send(1, Way::kToNext, value).ok());
      ASSERT_TRUE(to.receive(0, Way::kToNext, value).ok());
    }
}

TEST(ExchangeMemory, AHostLinkTakesThePredictedMemory) {
  constexpr RankLayout kTwo{.tp_size = 1, .pp_size = 2};
  for (const std::vector<std::int64_t>& values : {std::vector<std::int64_t>{1000}, {1000, 30}, {7, 8, 9}}) {
    Pipeline pipeline(kTwo, std::chrono::seconds(20));
    EXPECT_EQ(pipeline.bytes(0), 0);
    run_steps(pipeline, pipeline, values, 40);
    const ExchangeSizes sizes{.received = values};
    EXPECT_EQ(pipeline.bytes(0), host_exchange_bytes(sizes, {.layout = kTwo, .rank = 0}, kSteps));
    EXPECT_EQ(pipeline.bytes(1), 0) << "nothing comes for the first stage";
    EXPECT_EQ(host_exchange_bytes({.sent = values}, {.layout = kTwo, .rank = 1}, kSteps), 0);
  }
}

TEST(ExchangeMemory, LargeValuesCountWhileTheyWait) {
  constexpr RankLayout kTwo{.tp_size = 1, .pp_size = 2};
  Pipeline pipeline(kTwo, std::chrono::seconds(20));
  std::vector<std::byte> value(static_cast<std::size_t>(5 * kMiB));
  for (int sent = 0; sent < kSteps; ++sent) ASSERT_TRUE(pipeline.send(1, Way::kToNext, value).ok());
  EXPECT_EQ(pipeline.bytes(0), kSteps * 5 * kMiB);
  EXPECT_EQ(pipeline.bytes(0), host_exchange_bytes({.received = {5 * kMiB}}, {.layout = kTwo, .rank = 0}, kSteps));
  for (int came = 0; came < kSteps; ++came) ASSERT_TRUE(pipeline.receive(0, Way::kToNext, value).ok());
  EXPECT_EQ(pipeline.bytes(0), 0) << "their memory is given back";
}

TEST(ExchangeMemory, ALinkBetweenNodesTakesThePredictedMemory) {
  constexpr RankLayout kTwo{.tp_size = 1, .pp_size = 2};
  const std::unique_ptr<Nodes> nodes = make_stage_nodes(2, kTwo);
  run_steps(*nodes->rank(1).pipeline(), *nodes->rank(0).pipeline(), {1000}, 20);
  const std::int64_t predicted =
      host_exchange_bytes({.received = {1000}}, {.layout = kTwo, .rank = 0, .nodes = 2}, kSteps);
  EXPECT_GT(predicted, 16 * 1000) << "a frame has a head";
  EXPECT_EQ(nodes->rank(0).host_bytes(), predicted);
  EXPECT_EQ(nodes->rank(1).host_bytes(), 0);
}

TensorView rows_of(std::vector<float>& values, std::int64_t rows) {
  return {.data = {reinterpret_cast<std::byte*>(values.data())},
          .rank = 2,
          .dims = {rows, static_cast<std::int64_t>(values.size()) / rows}};
}

TEST(ExchangeMemory, NodesKeepFramesOfTheLargestSize) {
  constexpr int kRanks = 4;
  constexpr std::size_t kValues = 24;
  const std::unique_ptr<Nodes> nodes = make_nodes(2, kRanks);
  run_ranks(kRanks, [&](int r) {
    Communicator& rank = nodes->rank(r);
    std::vector<float> x(kValues, 1);
    std::vector<float> all(kRanks * kValues, 1);
    EXPECT_TRUE(rank.all_reduce(rows_of(x, 1)).ok());
    EXPECT_TRUE(rank.all_gather_rows(rows_of(x, 2), rows_of(all, 2 * kRanks)).ok());
    EXPECT_TRUE(rank.reduce_scatter(rows_of(all, kRanks), rows_of(x, 1)).ok());
    std::vector<float> smaller(4, 1);
    EXPECT_TRUE(rank.all_reduce(rows_of(smaller, 1)).ok());
  });
  constexpr std::int64_t kBytes = kValues * sizeof(float);
  const ExchangeSizes sizes{.reduced = kBytes, .gathered = kBytes, .scattered = kRanks * kBytes};
  for (int r = 0; r < kRanks; ++r) {
    const std::int64_t predicted =
        host_exchange_bytes(sizes, {.layout = {.tp_size = kRanks}, .rank = r, .nodes = 2}, kSteps);
    EXPECT_EQ(nodes->rank(r).host_bytes(), predicted) << r;
    EXPECT_EQ(predicted == 0, r == 1 || r == 3) << "the first rank of a process has all of it";
  }
}

TEST(ExchangeMemory, RanksOfOneProcessKeepNothing) {
  const auto group = Communicator::create_group(2);
  run_ranks(2, [&](int r) {
    std::vector<float> x(24, 1);
    EXPECT_TRUE(group[static_cast<std::size_t>(r)]->all_reduce(rows_of(x, 1)).ok());
  });
  EXPECT_EQ(group[0]->host_bytes(), 0);
  EXPECT_EQ(host_exchange_bytes({.reduced = 96}, {.layout = {.tp_size = 2}}, kSteps), 0);
}

TEST(ExchangeMemory, GpusHaveMailboxesLinksOrNccl) {
  const ExchangeSizes sums{.reduced = 96};
  EXPECT_EQ(device_exchange_bytes(sums, {}), 0) << "one rank";
  EXPECT_EQ(device_exchange_bytes(sums, {.layout = {.tp_size = 2}}), 48 * kMiB + 256);
  EXPECT_EQ(device_exchange_bytes(sums, {.layout = {.tp_size = 2}, .nodes = 2}), kNcclBytes);
  EXPECT_EQ(device_exchange_bytes({}, {.layout = {.tp_size = 2}}), 0) << "nothing is exchanged";

  // The pipeline has three stages of one rank each. Rank 2 runs the first stage, and rank 0 runs the last stage.
  constexpr RankLayout kThree{.tp_size = 1, .pp_size = 3};
  EXPECT_EQ(device_exchange_bytes({.sent = {9}}, {.layout = kThree, .rank = 2}), 512);
  EXPECT_EQ(device_exchange_bytes({.sent = {9}, .received = {9}}, {.layout = kThree, .rank = 1}), 64 * kMiB + 2 * 512);
  EXPECT_EQ(device_exchange_bytes({.sent = {9}, .received = {9}}, {.layout = kThree, .rank = 1, .nodes = 3}),
            2 * kNcclBytes);

  constexpr RankLayout kFour{.tp_size = 2, .pp_size = 2};
  const ExchangeSizes both{.reduced = 96, .received = {9}};
  EXPECT_EQ(device_exchange_bytes(both, {.layout = kFour, .rank = 1, .nodes = 2}), 48 * kMiB + 256 + kNcclBytes)
      << "whole stages are on a node";
}

}  // namespace
}  // namespace tessera::testing
