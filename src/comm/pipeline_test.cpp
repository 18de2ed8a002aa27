// Catches: values that arrive out of order; a value of the wrong size that is accepted; a rank that waits for ever for
// a lost neighbour; a fault in one stage that leaves the other stages waiting.
#include "tessera/comm/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "tessera/comm/communicator.h"

namespace tessera::testing {
namespace {

using ::testing::HasSubstr;
using Way = Pipeline::Way;

constexpr RankLayout kTwoRanks{.tp_size = 1, .pp_size = 2};

TEST(RankLayout, Rank0IsInTheLastStage) {
  const RankLayout layout{.tp_size = 2, .pp_size = 3};
  EXPECT_EQ(layout.stage_of(0), 2);
  EXPECT_EQ(layout.stage_of(1), 2);
  EXPECT_EQ(layout.stage_of(5), 0);
  for (int rank = 0; rank < layout.ranks(); ++rank)
    EXPECT_EQ(layout.rank_at(layout.stage_of(rank), layout.rank_in_stage(rank)), rank);
}

TEST(Pipeline, ValuesArriveInTheOrderOfSending) {
  Pipeline pipeline({.tp_size = 2, .pp_size = 3}, std::chrono::seconds(20));
  const int first = pipeline.layout().rank_at(0, 1);
  const int next = pipeline.layout().rank_at(1, 1);
  std::thread sender([&] {
    for (int n = 0; n < 100; ++n)  // more values than a link holds
      EXPECT_TRUE(pipeline.send(first, Way::kToNext, std::as_bytes(std::span(&n, 1))).ok());
  });
  for (int n = 0; n < 100; ++n) {
    int came = -1;
    const Status received = pipeline.receive(next, Way::kToNext, std::as_writable_bytes(std::span(&came, 1)));
    EXPECT_TRUE(received.ok()) << received.to_string();
    EXPECT_EQ(came, n);
    if (::testing::Test::HasFailure()) break;
  }
  pipeline.end(cancelled("all values were sent"));  // releases a sender whose values no rank receives
  sender.join();
}

TEST(Pipeline, AValueOfAnotherSizeIsRefused) {
  Pipeline pipeline(kTwoRanks, std::chrono::seconds(20));
  const std::array<std::byte, 3> sent{};
  std::array<std::byte, 4> received{};
  ASSERT_TRUE(pipeline.send(1, Way::kToNext, sent).ok());
  EXPECT_THAT(pipeline.receive(0, Way::kToNext, received).message(),
              HasSubstr("rank 1 of 2 sent 3 bytes to rank 0 in the next stage, which expects 4"));
}

TEST(Pipeline, AWaitEndsWithItsPipelineOrLimit) {
  Pipeline pipeline(kTwoRanks, std::chrono::milliseconds(50));
  std::array<std::byte, 4> received{};
  const Status late = pipeline.receive(0, Way::kToNext, received);
  EXPECT_EQ(late.code(), StatusCode::kCancelled);
  EXPECT_THAT(late.message(),
              HasSubstr("rank 1 of 2 did not meet rank 0, its neighbour in the pipeline, within 0.05 s"));
  EXPECT_EQ(pipeline.send(1, Way::kToNext, received).message(), late.message()) << "it has ended for all";

  pipeline.begin();
  EXPECT_TRUE(pipeline.send(1, Way::kToNext, received).ok());
  pipeline.begin();  // drops the value that was sent before
  pipeline.end(cancelled("enough"));
  EXPECT_EQ(pipeline.receive(0, Way::kToNext, received).message(), "enough");
}

// A fault of any rank ends the waits of all ranks of all stages. A restart resets the group.
TEST(Pipeline, AnAbortEndsTheGroupsOfAllStages) {
  const auto group = Communicator::create_stages({.tp_size = 2, .pp_size = 2}, std::chrono::seconds(20));
  std::array<float, 4> x{1, 2, 3, 4};
  const TensorView view{.data = {reinterpret_cast<std::byte*>(x.data())}, .rank = 2, .dims = {1, 4}};
  std::thread waits_for_stage_0([&] {
    EXPECT_THAT(group[0]->pipeline()->receive(0, Way::kToNext, std::as_writable_bytes(std::span(x))).message(),
                HasSubstr("rank 3 of 4 left the group: a test"));
  });
  std::thread waits_for_rank_1(
      [&] { EXPECT_THAT(group[2]->all_reduce(view).message(), HasSubstr("rank 3 of 4 left the group: a test")); });
  group[3]->abort("a test");
  waits_for_stage_0.join();
  waits_for_rank_1.join();
  EXPECT_EQ(group[1]->status().code(), StatusCode::kCancelled);
  ASSERT_TRUE(group[0]->restart().ok());
  for (const auto& member : group) EXPECT_TRUE(member->status().ok());
  EXPECT_TRUE(group[2]->pipeline()->send(2, Way::kToNext, std::as_bytes(std::span(x))).ok());
}

// An error names a rank by its number among the ranks of all stages, even if only the group of one stage failed.
TEST(Pipeline, AStagesRankIsNamedByItsPlace) {
  const RankLayout layout{.tp_size = 2, .pp_size = 2};
  std::array<float, 4> x{1, 2, 3, 4};
  const TensorView view{.data = {reinterpret_cast<std::byte*>(x.data())}, .rank = 2, .dims = {1, 4}};
  const auto late = Communicator::create_stages(layout, std::chrono::milliseconds(50));
  EXPECT_THAT(late[2]->all_reduce(view).message(), HasSubstr("rank 3 of 4 did not come to all_reduce"));

  const auto group = Communicator::create_stages(layout, std::chrono::seconds(20));
  std::array<float, 2> y{1, 2};
  const TensorView smaller{.data = {reinterpret_cast<std::byte*>(y.data())}, .rank = 2, .dims = {1, 2}};
  std::thread other([&] { EXPECT_FALSE(group[3]->all_reduce(smaller).ok()); });
  EXPECT_THAT(group[2]->all_reduce(view).message(),
              HasSubstr("rank 2 is in all_reduce with 4 elements f32, rank 3 in all_reduce with 2 f32"));
  other.join();
}

TEST(Pipeline, OneStageHasNoPipeline) { EXPECT_EQ(Communicator::create_group(2)[0]->pipeline(), nullptr); }

}  // namespace
}  // namespace tessera::testing
