// Catches, on the device under test: values that overtake one another between stages or are mistaken for those of an
// earlier step (also by replays); a sender that overwrites a value that was not received yet; and a rank that waits for
// ever for a neighbour that is gone. On GPUs each rank needs one of its own.
#include "tessera/ops/comm/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <thread>

#include "tessera/ops/built_in_ops.h"
#include "tessera/ops/comm/collective.h"
#include "tessera/ops/contract/op_test_util.h"
#include "tessera/ops/testing/ranks.h"

namespace tessera::testing {
namespace {

using ir::DType;
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
    for (int n = 0; n < 100; ++n)  // more than may wait
      EXPECT_TRUE(pipeline.send(first, Way::kToNext, std::as_bytes(std::span(&n, 1))).ok());
  });
  for (int n = 0; n < 100; ++n) {
    int came = -1;
    const Status received = pipeline.receive(next, Way::kToNext, std::as_writable_bytes(std::span(&came, 1)));
    EXPECT_TRUE(received.ok()) << received.to_string();
    EXPECT_EQ(came, n);
    if (::testing::Test::HasFailure()) break;
  }
  pipeline.end(cancelled("all values were sent"));  // ends a sender whose values nobody takes
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

TEST(Pipeline, AWaitEndsWithThePipelineOrAfterTheLimit) {
  Pipeline pipeline(kTwoRanks, std::chrono::milliseconds(50));
  std::array<std::byte, 4> received{};
  const Status late = pipeline.receive(0, Way::kToNext, received);
  EXPECT_EQ(late.code(), StatusCode::kCancelled);
  EXPECT_THAT(late.message(),
              HasSubstr("rank 1 of 2 did not come to its neighbour in the pipeline, rank 0, within 0.05 s"));
  EXPECT_EQ(pipeline.send(1, Way::kToNext, received).message(), late.message()) << "it has ended for all";

  pipeline.begin();
  EXPECT_TRUE(pipeline.send(1, Way::kToNext, received).ok());
  pipeline.begin();  // values that were sent before are gone
  pipeline.end(cancelled("enough"));
  EXPECT_EQ(pipeline.receive(0, Way::kToNext, received).message(), "enough");
}

// A fault of any rank ends the waits of all ranks of all stages. After a restart the group is as new.
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

// Errors count ranks over all stages, also errors of one stage's group.
TEST(Pipeline, ARankOfAStageIsNamedByItsPlace) {
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

// Runs one side of a link: steps that send or receive tensors of several sizes, alternately eagerly and by a replay.
Status run_side(Communicator& communicator, const ir::OpDecl& decl, const std::vector<std::int64_t>& columns,
                int steps) {
  const std::unique_ptr<Device> device = TRY(open_rank_device(communicator));
  const std::unique_ptr<Stream> stream = TRY(device->create_stream("side"));
  const bool sends = decl.name == kSendToNext.name;
  ForwardContext context;
  context.communicator = &communicator;
  const KernelDef& kernel = *TRY(TRY(test_devices().kernels(device->properties().type))->get(decl.name));
  const ir::Node node = make_node(decl, 1, {});
  std::vector<std::unique_ptr<Allocation>> memory;
  std::vector<TensorView> tensors;
  std::vector<std::unique_ptr<BoundOp>> bound;
  for (const std::int64_t n : columns) {
    memory.push_back(TRY(device->allocate(static_cast<std::size_t>(3 * n) * sizeof(float), "value")));
    tensors.push_back({.data = memory.back()->data(), .dtype = DType::kFloat32, .rank = 2, .dims = {3, n}});
    bound.push_back(TRY(kernel.bind({node, std::span(&tensors.back(), 1), {}, {}, *device, context})));
  }
  const auto enqueue = [&]() -> Status {
    for (const auto& op : bound) TRY(op->enqueue(*stream));
    return ok_status();
  };
  std::unique_ptr<RecordedGraph> graph;
  for (int step = 0; step < steps; ++step) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      std::vector<float> values(static_cast<std::size_t>(tensors[i].elements()), -1.0F);
      if (sends) std::iota(values.begin(), values.end(), static_cast<float>(1000 * step + static_cast<int>(i)));
      TRY(stream->upload(tensors[i].data, values.data(), values.size() * sizeof(float)));
    }
    if (step == 1) {
      TRY(stream->begin_recording("side"));
      TRY(enqueue());
      graph = TRY(stream->end_recording());
    }
    TRY(step % 2 == 1 ? graph->launch(*stream) : enqueue());
    for (std::size_t i = 0; i < tensors.size() && !sends; ++i) {
      std::vector<float> values(static_cast<std::size_t>(tensors[i].elements()));
      TRY(stream->download(values.data(), tensors[i].data, values.size() * sizeof(float)));
      TRY(stream->synchronize());
      std::vector<float> expected(values.size());
      std::iota(expected.begin(), expected.end(), static_cast<float>(1000 * step + static_cast<int>(i)));
      EXPECT_EQ(values, expected) << "step " << step << ", value " << i;
    }
  }
  return stream->synchronize();
}

TEST(PipelineOps, EveryStepReceivesWhatItsNeighbourSent) {
  if (!has_devices_for(2)) GTEST_SKIP() << "needs 2 GPUs";
  const auto group = Communicator::create_stages(kTwoRanks, std::chrono::seconds(30));
  // Sizes: a multiple of sixteen bytes and of four; fewer bytes than one thread for each block; more than a slot takes
  // on a GPU.
  const std::vector<std::int64_t> columns =
      on_cuda() ? std::vector<std::int64_t>{64, 1, 1025, 3'000'000} : std::vector<std::int64_t>{64, 1, 1025};
  Status sent;
  std::thread sender([&] { sent = run_side(*group[1], kSendToNext, columns, 9); });
  const Status received = run_side(*group[0], kReceiveFromPrevious, columns, 9);
  sender.join();
  EXPECT_TRUE(sent.ok()) << sent.to_string();
  EXPECT_TRUE(received.ok()) << received.to_string();
}

TEST(PipelineOps, OneStageRefusesBothOperators) {
  const auto alone = Communicator::create_group(1);
  EXPECT_THAT(run_side(*alone[0], kSendToNext, {4}, 1).message(),
              HasSubstr("was built for several stages, and one runs"));
}

}  // namespace
}  // namespace tessera::testing
