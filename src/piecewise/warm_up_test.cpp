// Catches: a kernel whose first run happens during a recording; a kernel that is warmed up twice or in the wrong order;
// and a failed warm-up that counts as done.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/piecewise/executable_test_util.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::ExecutableBench;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::kCuts;
using testing::tokens;

std::vector<std::string> enqueued;  // kernels that ran outside of recordings, as "name/choice"

// A kernel that has a different code variant for each range of row counts. A range has kRowsAlike consecutive row
// counts. If kRowsAlike is 0, one variant serves all row counts.
template <int kRowsAlike>
class VariedKernel final : public BoundOp {
 public:
  VariedKernel(std::string name, std::unique_ptr<BoundOp> kernel, std::int64_t rows)
      : name_(std::move(name)), kernel_(std::move(kernel)), rows_(rows) {}
  Status enqueue(Stream& stream) const override {
    if (!stream.recording()) enqueued.push_back(name_ + "/" + std::to_string(choice()));
    return kernel_->enqueue(stream);
  }

 private:
  std::uint64_t choice() const override {
    return kRowsAlike == 0 ? 0 : static_cast<std::uint64_t>(rows_ / std::max(kRowsAlike, 1));
  }

  std::string name_;
  std::unique_ptr<BoundOp> kernel_;
  std::int64_t rows_;
};

template <int kRowsAlike, auto kBind>
Result<std::unique_ptr<BoundOp>> bind_varied(const BindArgs& args) {
  return std::make_unique<VariedKernel<kRowsAlike>>(args.node.op, TRY(kBind(args)), args.operands[0].dim(0));
}

const KernelTable& varied_kernels() {
  static const KernelTable table =
      testing::bench_kernels()
          .with({.op = "matmul", .name = "varied", .bind = bind_varied<8, testing::test_ops::bind_matmul>})
          .with({.op = "store", .name = "varied", .bind = bind_varied<0, testing::test_ops::bind<false>>});
  return table;
}

ExecutableBench varied_two_cuts() {
  ExecutableBench bench = testing::two_cuts();
  bench.use_compiler(
      make_eager_compiler({.device = bench.device(), .ops = testing::bench_ops(), .kernels = varied_kernels()}));
  enqueued.clear();
  return bench;
}

TEST(WarmUp, RunsEachVariantOnceInForwardOrder) {
  ExecutableBench bench = varied_two_cuts();
  const std::unique_ptr<Executable> executable = *bench.create(kCuts);
  const auto warmed_for = [&](std::int64_t size) {
    enqueued.clear();
    EXPECT_TRUE(executable->bind(tokens(size)).ok());
    EXPECT_TRUE(executable->warm_up(tokens(size)).ok());
    EXPECT_FALSE(*executable->has_cold_kernels(tokens(size)));
    EXPECT_TRUE(executable->capture(tokens(size)).ok());
    return enqueued;
  };
  EXPECT_THAT(warmed_for(24), ElementsAre("store/0", "matmul/3"));
  EXPECT_THAT(warmed_for(17), ElementsAre("matmul/2"));
  EXPECT_THAT(warmed_for(23), IsEmpty()) << "of the same variants as 17";
  EXPECT_THAT(warmed_for(7), ElementsAre("matmul/0"));
  for (const std::int64_t size : {24, 17, 23, 7})
    EXPECT_EQ(bench.replay(*executable, size, 3), bench.reference(size, 3)) << size;
}

TEST(WarmUp, AKernelThatRanEagerlyIsWarm) {
  ExecutableBench bench = varied_two_cuts();
  const std::unique_ptr<Executable> executable = *bench.create(kCuts);
  ASSERT_TRUE(executable->bind(tokens(9)).ok());
  EXPECT_TRUE(*executable->has_cold_kernels(tokens(9)));
  ASSERT_TRUE(executable->run(tokens(9)).ok());
  EXPECT_FALSE(*executable->has_cold_kernels(tokens(9)));
  ASSERT_TRUE(executable->bind(tokens(4)).ok());
  EXPECT_TRUE(*executable->has_cold_kernels(tokens(4)));
}

TEST(WarmUp, AKernelWhoseWarmUpFailedStaysCold) {
  ExecutableBench bench = varied_two_cuts();
  const std::unique_ptr<Executable> executable = *bench.create(kCuts);
  ASSERT_TRUE(executable->bind(tokens(9)).ok());
  bench.device().set_plan({.launch_fails_at = 4});
  EXPECT_THAT(executable->warm_up(tokens(9)).message(),
              AllOf(HasSubstr("piece 2 at T=9"), HasSubstr("warming up"), HasSubstr("operator matmul (%b)")));
  EXPECT_TRUE(*executable->has_cold_kernels(tokens(9)));
  bench.device().set_plan({});
  enqueued.clear();
  EXPECT_TRUE(executable->warm_up(tokens(9)).ok());
  EXPECT_THAT(enqueued, ElementsAre("matmul/1"));
}

}  // namespace
}  // namespace tessera
