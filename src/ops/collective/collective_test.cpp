// Catches: collectives that exchange nothing when they are replayed; operands of wrong sizes that are accepted.
#include "tessera/ops/collective/collective.h"

#include <gmock/gmock.h>

#include <thread>

#include "tessera/comm/communicator.h"
#include "tessera/ops/contract/op_test_util.h"

namespace tessera::testing {
namespace {

using ir::DType;
using ::testing::HasSubstr;

TEST(CollectiveOps, OneRankNeedsNoCommunicator) {
  const HostTensor x = random_tensor(DType::kBFloat16, {3, 4}, 1);
  EXPECT_EQ(run_op(kAllReduce, kAllReduceCpu, {x}).operands[0].bytes, x.bytes);
  EXPECT_EQ(run_op(kAllGather, kAllGatherCpu, {x}, {{"ranks", std::int64_t{1}}}).results[0].bytes, x.bytes);
}

TEST(CollectiveOps, RecordedGraphsExchangeData) {
  if (on_cuda()) GTEST_SKIP() << "ranks of one process are the CPU's";
  constexpr int kRanks = 2;
  const std::vector<std::unique_ptr<Communicator>> group = Communicator::create_group(kRanks);
  const auto run_rank = [&](int r) {
    const ForwardContext context{.limits = {}, .plans = {}, .communicator = group[static_cast<std::size_t>(r)].get()};
    const HostTensor x = filled_tensor(DType::kFloat32, {2, 3}, r + 1);
    const OpOutcome reduced = run_op(kAllReduce, kAllReduceCpu, {x}, {}, context);
    EXPECT_EQ(reduced.operands[0].bytes, filled_tensor(DType::kFloat32, {2, 3}, 3).bytes);
    const OpOutcome gathered = run_op(kAllGather, kAllGatherCpu, {x}, {{"ranks", std::int64_t{kRanks}}}, context);
    EXPECT_EQ(gathered.results[0].values(), (std::vector<double>{1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2}));
  };
  std::thread other(run_rank, 1);
  run_rank(0);
  other.join();
  EXPECT_TRUE(group[0]->status().ok());
}

TEST(CollectiveOps, RefuseOperandsThatDoNotFit) {
  const ir::Type x{DType::kFloat32, {ir::Symbol::kRows, 8}};
  const Result<std::vector<ir::Type>> types = infer_types(kAllGather, {x}, {{"ranks", std::int64_t{4}}});
  ASSERT_TRUE(types.ok());
  EXPECT_EQ((*types)[0].to_string(), "f32[R, 32]");
  EXPECT_THAT(infer_error(kAllGather, {x}, {{"ranks", std::int64_t{0}}}), HasSubstr("ranks is 0"));
  const ir::Type flat{DType::kFloat32, {8}};
  EXPECT_THAT(infer_error(kAllGather, {flat}, {{"ranks", std::int64_t{2}}}), HasSubstr("not f32[8]"));
  const ir::Type ids{DType::kInt32, {8}};
  EXPECT_THAT(infer_error(kAllReduce, {ids}), HasSubstr("not i32[8]"));
  const HostTensor t = random_tensor(DType::kFloat32, {2, 2}, 1);
  EXPECT_THAT(try_run_op(kAllGather, kAllGatherCpu, {t}, {{"ranks", std::int64_t{2}}}).status().message(),
              HasSubstr("built for 2 ranks, but 1 run"));
}

}  // namespace
}  // namespace tessera::testing
