// Catches: values between stages on different nodes that arrive out of order, get lost on their way through node 0, or
// were sent before a restart but are received after it; a sender that fills the memory of a node that does not receive
// its values; a rank that waits for a lost node; and invalid frames that are accepted.
//
// All nodes run in this process. They are connected by TCP, like separate processes.
#include "tessera/comm/stage_wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <numeric>
#include <thread>

#include "tessera/comm/testing/nodes.h"

namespace tessera::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Way = Pipeline::Way;

constexpr RankLayout kTwoStages{.tp_size = 1, .pp_size = 2};

Status send(Communicator& rank, std::span<const int> values) {
  return rank.pipeline()->send(rank.world_rank(), Way::kToNext, std::as_bytes(values));
}
Status receive(Communicator& rank, std::span<int> values) {
  return rank.pipeline()->receive(rank.world_rank(), Way::kToNext, std::as_writable_bytes(values));
}

template <class Done>
void until(const Done& done) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!done()) {
    ASSERT_LT(std::chrono::steady_clock::now(), end);
    std::this_thread::sleep_for(milliseconds(1));
  }
}

struct WireCase {
  int nodes;
  RankLayout layout;
};

class StageNodes : public ::testing::TestWithParam<WireCase> {};

// Values go from the first stage to the last. Some stay within a node, some go to node 0, and some go through node 0 to
// another node.
TEST_P(StageNodes, ValuesArriveInTheOrderOfSending) {
  const auto& [nodes, layout] = GetParam();
  const std::unique_ptr<Nodes> made = make_stage_nodes(nodes, layout);
  run_ranks(layout.ranks(), [&](int place) {
    Communicator& rank = made->rank(place);
    ASSERT_EQ(rank.world_rank(), place);
    for (int step = 0; step < 100; ++step) {  // more values than a link holds
      std::vector<int> value(static_cast<std::size_t>(1 + 700 * (step % 5)));
      std::vector<int> expected(value.size());
      std::iota(expected.begin(), expected.end(), 1000 * step + layout.rank_in_stage(place));
      if (layout.stage_of(place) == 0) {
        value = expected;
      } else {
        const Status received = receive(rank, value);
        ASSERT_TRUE(received.ok()) << received.to_string();
        ASSERT_EQ(value, expected) << "rank " << place << ", step " << step;
      }
      if (layout.stage_of(place) + 1 == layout.pp_size) continue;
      const Status sent = send(rank, value);
      ASSERT_TRUE(sent.ok()) << sent.to_string();
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, StageNodes,
                         ::testing::Values(WireCase{2, {.tp_size = 1, .pp_size = 2}},
                                           WireCase{2, {.tp_size = 2, .pp_size = 4}},
                                           WireCase{4, {.tp_size = 1, .pp_size = 4}}),
                         [](const auto& test) {
                           return std::to_string(test.param.nodes) + "Nodes" +
                                  std::to_string(test.param.layout.pp_size) + "x" +
                                  std::to_string(test.param.layout.tp_size);
                         });

// Values also travel backwards, for instance when GPUs exchange handles.
TEST(StageWire, ValuesTravelBothWays) {
  const std::unique_ptr<Nodes> made = make_stage_nodes(2, kTwoStages);
  int sent = 5;
  int came = 0;
  ASSERT_TRUE(made->rank(0).pipeline()->send(0, Way::kToPrevious, std::as_bytes(std::span(&sent, 1))).ok());
  ASSERT_TRUE(made->rank(1).pipeline()->receive(1, Way::kToPrevious, std::as_writable_bytes(std::span(&came, 1))).ok());
  EXPECT_EQ(came, 5);
}

TEST(StageWire, ASenderWaitsForASlowReceiver) {
  const std::unique_ptr<Nodes> made = make_stage_nodes(2, kTwoStages, milliseconds(300));
  const std::array<int, 1> value{};
  Status sent;
  std::size_t out = 0;
  for (; sent.ok(); ++out) sent = send(made->rank(1), value);
  EXPECT_EQ(out, Pipeline::kMostWaiting + 1);
  EXPECT_EQ(sent.code(), StatusCode::kCancelled);
  EXPECT_THAT(sent.message(), HasSubstr("rank 0 of 2 did not meet rank 1, its neighbour in the pipeline, within 0.3"));
}

// If a frame was sent but not received when the group ended, it must be dropped.
TEST(StageWire, ARestartedGroupDropsOldValues) {
  const RankLayout layout{.tp_size = 1, .pp_size = 3};
  const std::unique_ptr<Nodes> made = make_stage_nodes(3, layout);
  for (int round = 0; round < 30; ++round) {
    const std::array<int, 1> old{-1};
    for (int n = 0; n < round % 4; ++n) {
      (void)send(made->rank(2), old);  // from node 2 through node 0
      (void)send(made->rank(1), old);
    }
    made->rank(round % 3).abort("a fault");
    for (const auto& rank : made->ranks) until([&] { return !rank->status().ok(); });
    std::array<int, 1> came{};
    EXPECT_THAT(receive(made->rank(0), came).message(), HasSubstr("a fault"));
    ASSERT_TRUE(made->rank(0).restart().ok());
    for (const auto& rank : made->ranks) until([&] { return rank->status().ok(); });
    for (int rank = 2; rank > 0; --rank) {
      ASSERT_TRUE(send(made->rank(rank), std::array{10 * round + rank}).ok());
      ASSERT_TRUE(receive(made->rank(rank - 1), came).ok());
      EXPECT_EQ(came[0], 10 * round + rank);
    }
  }
}

TEST(StageWire, ANodeThatIsGoneReleasesTheOthers) {
  const std::unique_ptr<Nodes> made = make_stage_nodes(3, {.tp_size = 1, .pp_size = 3});
  std::thread ends([&] {
    std::this_thread::sleep_for(milliseconds(50));
    made->groups[2]->end();
  });
  std::array<int, 1> value{};
  EXPECT_THAT(receive(made->rank(1), value).message(), HasSubstr("node 2 of 3"));
  EXPECT_THAT(receive(made->rank(0), value).message(), HasSubstr("node 2 of 3"));
  ends.join();
}

TEST(StageWire, AValueOfAnotherSizeIsRefused) {
  const std::unique_ptr<Nodes> made = make_stage_nodes(2, kTwoStages);
  std::array<int, 3> came{};
  ASSERT_TRUE(send(made->rank(1), std::array{1, 2}).ok());
  EXPECT_THAT(receive(made->rank(0), came).message(),
              HasSubstr("rank 1 of 2 sent 8 bytes to rank 0 in the next stage, which expects 12"));
}

struct BadFrame {
  FrameKind kind;
  StageFrame head;
  std::size_t bytes;  // number of bytes of the head that are sent
  const char* words;
};

// In each case the connection ends with an error that describes the frame. The rank on node 0 gets this error too.
TEST(StageWire, AnUnreadableFrameIsAnError) {
  constexpr std::size_t kAll = sizeof(StageFrame);
  const std::vector<BadFrame> bad = {
      {FrameKind::kStageValue, {}, 3, "it sent a value between stages in 3 bytes; its head alone has 24"},
      {FrameKind::kStageTaken, {}, kAll - 1, "in 23 bytes"},
      {FrameKind::kStageValue, {.rank = 2}, kAll, "it sent a value to rank 2; there are 2"},
      {FrameKind::kStageValue, {.rank = -1}, kAll, "it sent a value to rank -1"},
      {FrameKind::kStageValue, {.rank = 0, .way = 1}, kAll, "rank 0 a value that no other node has for it"},
      {FrameKind::kStageValue, {.rank = 0, .way = 7}, kAll, "rank 0 a value that no other node has for it"},
      {FrameKind::kStageValue, {.number = 1, .rank = 0}, kAll, "it sent value 1 to rank 0, which has received 0 of 0"},
      {FrameKind::kStageTaken,
       {.number = 3, .rank = 0, .way = 1},
       kAll,
       "it received 3 values of rank 0, which has sent 0"},
  };
  for (const BadFrame& frame : bad) {
    const std::unique_ptr<Nodes> made = make_stage_nodes(2, kTwoStages);
    const auto head = std::as_bytes(std::span(&frame.head, 1)).first(frame.bytes);
    ASSERT_TRUE(made->groups[1]->send(0, frame.kind, std::array{head}).ok());
    std::array<int, 1> came{};
    EXPECT_THAT(receive(made->rank(0), came).message(), AllOf(HasSubstr("node 1 of 2"), HasSubstr(frame.words)));
  }
}

// A faulty node sends more values than Pipeline::kMostWaiting, although none of them has been received.
TEST(StageWire, ANodeThatSendsTooMuchIsRefused) {
  const std::unique_ptr<Nodes> made = make_stage_nodes(2, kTwoStages);
  for (std::uint64_t n = 0; n <= Pipeline::kMostWaiting; ++n) {
    const StageFrame head{.number = n, .rank = 0};
    (void)made->groups[1]->send(0, FrameKind::kStageValue, std::array{std::as_bytes(std::span(&head, 1))});
  }
  until([&] { return !made->rank(0).status().ok(); });
  EXPECT_THAT(made->rank(0).status().message(), HasSubstr("it sent value 16 to rank 0, which has received 0 of 16"));
}

// Only node 0 passes values on.
TEST(StageWire, AValueForAnotherNodeIsRefusedElsewhere) {
  const std::unique_ptr<Nodes> made = make_stage_nodes(3, {.tp_size = 1, .pp_size = 3});
  const StageFrame head{.rank = 2};
  ASSERT_TRUE(made->groups[0]->send(1, FrameKind::kStageValue, std::array{std::as_bytes(std::span(&head, 1))}).ok());
  until([&] { return !made->rank(1).status().ok(); });
  EXPECT_THAT(made->rank(1).status().message(), HasSubstr("it sent a value to rank 2, which is not here"));
}

}  // namespace
}  // namespace tessera::testing
