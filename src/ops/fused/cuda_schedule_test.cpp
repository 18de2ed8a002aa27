// Tests how a generated row kernel divides its work among threads. A pack is the neighbouring elements that a thread
// loads at once. A unit is the elements that are reduced together or, if nothing is reduced, a part of a row. Catches:
// packs that are larger than an address's alignment; units that do not fit a warp or block; arguments in another order
// than the generated kernel reads.
#include "tessera/ops/fused/cuda_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/ops/fused/cuda_source.h"

namespace tessera {
namespace {

using ir::DType;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

RowKernel norm(std::int64_t width, DType dtype) {
  RowKernel kernel{.rows = ir::Dim(ir::Symbol::kTokens), .num_operands = 3};
  kernel.values = {{.op = RowOp::kLoad, .dtype = dtype, .width = width, .operand = 0},
                   {.op = RowOp::kWeight, .dtype = dtype, .width = width, .operand = 1},
                   {.op = RowOp::kRmsNorm, .dtype = dtype, .width = width, .inputs = {0, 1}, .number = 1e-6}};
  kernel.stores = {{.value = 2, .operand = 2, .dtype = dtype}};
  return kernel;
}

CudaTaskSchedule only_task(const RowKernel& kernel) { return cuda_schedule(kernel)->schedules.at(0); }

TEST(CudaSchedule, PacksAreAsLargeAsAllPositionsAllow) {
  EXPECT_EQ(only_task(norm(1024, DType::kBFloat16)).pack, 8);
  EXPECT_EQ(only_task(norm(1024, DType::kFloat32)).pack, 4);
  EXPECT_EQ(only_task(norm(1028, DType::kBFloat16)).pack, 4);
  EXPECT_EQ(only_task(norm(257, DType::kBFloat16)).pack, 1);
  RowKernel part = norm(64, DType::kBFloat16);
  part.values[0].width = 66;  // rows of the sliced operand begin at multiples of 66 elements
  part.values.insert(part.values.begin() + 1,
                     {.op = RowOp::kSlice, .dtype = DType::kBFloat16, .width = 64, .inputs = {0}});
  part.values[3].inputs = {1, 2};
  part.stores[0].value = 3;
  EXPECT_EQ(only_task(part).pack, 2);
}

// A unit of at most 32 items is shared by lanes of one warp, and each lane holds one item. A larger unit is shared by a
// whole block, and each thread may hold several items.
TEST(CudaSchedule, UnitsFitTheirThreads) {
  struct Case {
    std::int64_t width, lanes, held, block_units, threads;
  };
  for (const Case& c : {Case{64, 8, 1, 16, 128}, Case{72, 16, 1, 8, 128}, Case{256, 32, 1, 4, 128},
                        Case{264, 128, 1, 1, 128}, Case{1024, 128, 1, 1, 128}, Case{2048, 256, 1, 1, 256},
                        Case{4096, 256, 2, 1, 256}, Case{12288, 256, 6, 1, 256}}) {
    const Result<CudaSchedule> schedule = cuda_schedule(norm(c.width, DType::kBFloat16));
    const CudaTaskSchedule& s = schedule->schedules[0];
    EXPECT_EQ(s.lanes, c.lanes) << c.width;
    EXPECT_EQ(s.held, c.held) << c.width;
    EXPECT_EQ(s.block_units, c.block_units) << c.width;
    EXPECT_EQ(schedule->threads, c.threads) << c.width;
    EXPECT_GE(s.lanes * s.held, s.items) << c.width;
  }
}

TEST(CudaLaunch, ArgumentsHaveTheOrderOfTheKernel) {
  const RowKernel kernel = norm(64, DType::kBFloat16);
  const std::uint64_t addresses[] = {100, 200, 300};
  const std::int64_t rows[] = {1, 2, 3};
  const CudaRowLaunch launch = cuda_launch(kernel, *cuda_schedule(kernel), 33, addresses, rows);
  EXPECT_EQ(launch.blocks, 3);  // blocks of 16 rows
  EXPECT_EQ(launch.threads, 128);
  EXPECT_THAT(launch.arguments, ElementsAre(33, 3, 100, 200, 300, 1, 2, 3));
  const std::string source = *cuda_source(kernel);
  EXPECT_THAT(source, HasSubstr("i64 rows;\n  i64 end[1];"));
  EXPECT_THAT(source, HasSubstr("void* operands[3];\n  i64 stored_rows[3];"));
}

// Blocks of other sizes give the same results, because a unit keeps its number of lanes. If a whole block adds up a
// unit, only one size is possible.
TEST(CudaSchedule, BlocksOfOtherSizesKeepEveryUnit) {
  const CudaSchedule own = *cuda_schedule(norm(64, DType::kBFloat16));
  EXPECT_THAT(block_sizes(own), ElementsAre(128, 64, 256, 512));
  EXPECT_EQ(own.most_threads, 512);
  for (const std::int64_t threads : block_sizes(own)) {
    const CudaSchedule other = with_threads(own, threads);
    EXPECT_EQ(other.threads, threads);
    EXPECT_EQ(other.schedules[0].lanes, own.schedules[0].lanes);
    EXPECT_EQ(other.schedules[0].held, own.schedules[0].held);
    EXPECT_EQ(other.schedules[0].block_units * other.schedules[0].lanes, threads);
  }
  EXPECT_THAT(block_sizes(*cuda_schedule(norm(4096, DType::kBFloat16))), ::testing::SizeIs(1));
  EXPECT_THAT(*cuda_source(norm(64, DType::kBFloat16)), HasSubstr("__launch_bounds__(512)"));
}

// Weights are read before the wait for the preceding kernels, and everything else after it.
TEST(CudaSource, OnlyWeightsAreReadBeforeTheWait) {
  const std::string source = *cuda_source(norm(64, DType::kBFloat16));
  const std::string task = source.substr(source.find("void task0"));
  const std::size_t wait = task.find("wait_for_previous();");
  EXPECT_LT(task.find("a.operands[1]"), wait);
  EXPECT_GT(task.find("a.operands[0]"), wait);
  EXPECT_GT(task.find("a.operands[2]"), wait);
}

}  // namespace
}  // namespace tessera
