// Tests the link between stages on the device under test. Catches: values that arrive in the wrong order; values of an
// earlier step that are mistaken for values of this step (also in replays); senders that overwrite a value before it is
// received. On GPUs each rank needs its own GPU.
#include "tessera/ops/collective/stage_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "tessera/comm/communicator.h"
#include "tessera/ops/contract/op_test_util.h"
#include "tessera/ops/testing/ranks.h"

namespace tessera::testing {
namespace {

using ir::DType;
using ::testing::HasSubstr;

constexpr RankLayout kTwoRanks{.tp_size = 1, .pp_size = 2};

// Runs one side of a link. Each step sends or receives tensors of several sizes. Eager steps and replays alternate.
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
  // The first value's size is a multiple of 16 bytes. The second value has only 12 bytes, so some blocks send nothing.
  // The third value's size is a multiple of 4 bytes, but not of 16. The fourth value, which only a GPU gets, is larger
  // than a slot of the link.
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
              HasSubstr("was built for several pipeline stages, but only one runs"));
}

}  // namespace
}  // namespace tessera::testing
