// Catches: a kernel whose first run happens while a stream records. If a device or library loads code on the first run,
// the recording fails. The tests capture at the start, on first use and in idle moments, on one rank and on several.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <thread>

#include "tessera/comm/communicator.h"
#include "tessera/runner/runner_test_util.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using testing::ids;
using ::testing::IsEmpty;
using testing::make_captured;
using ::testing::Pair;
using testing::RunnerBench;
using testing::small_options;

// The number of runs outside recordings, by the number of rows in the run.
std::map<std::uint64_t, int> runs;

// A silu_mul kernel that loads separate code for each number of rows, like a library that picks algorithms by size. The
// first run with a number of rows loads the code, and returns an error if the stream is recording then.
class LazilyLoaded final : public BoundOp {
 public:
  LazilyLoaded(std::unique_ptr<BoundOp> kernel, std::int64_t rows, Device& device)
      : kernel_(std::move(kernel)), rows_(rows), device_(device) {}
  Status enqueue(Stream& stream) const override {
    if (runs[choice()] == 0) TRY(device_.begin_initialisation("lazily loaded code"));
    if (!stream.recording()) ++runs[choice()];
    return kernel_->enqueue(stream);
  }

 private:
  std::uint64_t choice() const override { return static_cast<std::uint64_t>(rows_); }

  std::unique_ptr<BoundOp> kernel_;
  std::int64_t rows_;
  Device& device_;
};

const KernelTable& lazy_kernels() {
  static const KernelTable table = cpu_kernels().with(
      {.op = "silu_mul", .name = "lazily loaded", .bind = [](const BindArgs& args) -> Result<std::unique_ptr<BoundOp>> {
         return std::make_unique<LazilyLoaded>(TRY((*cpu_kernels().get("silu_mul"))->bind(args)),
                                               args.operands[0].rows(), args.device);
       }});
  return table;
}

// A silu_mul kernel in which the ranks wait for one another. It has a variant for each number of rows.
class MeetsRanks final : public BoundOp {
 public:
  MeetsRanks(std::unique_ptr<BoundOp> kernel, const TensorView& y, Communicator* communicator)
      : kernel_(std::move(kernel)), y_(y), communicator_(communicator) {}
  Status enqueue(Stream& stream) const override {
    TRY(kernel_->enqueue(stream));
    return as_cpu(stream).launch("all_reduce", [y = y_, c = communicator_] { return c->all_reduce(y); });
  }

 private:
  std::uint64_t choice() const override { return static_cast<std::uint64_t>(y_.rows()); }

  std::unique_ptr<BoundOp> kernel_;
  TensorView y_;
  Communicator* communicator_;
};

RunnerOptions lazy_options(CaptureMode mode) {
  RunnerOptions options = small_options();
  options.kernels = &lazy_kernels();
  options.capture = mode;
  runs.clear();
  return options;
}

void expect_all_captured(const ModelRunner& runner) {
  for (const GraphRunner* of : {&runner.prefill(), &runner.decode()}) {
    EXPECT_EQ(of->report().captured, of->spec().ladder) << of->name();
    EXPECT_THAT(of->report().dropped, IsEmpty()) << of->name();
  }
}

TEST(WarmUp, EverySizeIsCapturedAtTheStart) {
  RunnerBench lazy = make_captured("llama", lazy_options(CaptureMode::kEager));
  expect_all_captured(*lazy.runner);
  RunnerBench plain = make_captured("llama", small_options());
  for (const std::int64_t tokens : {3, 9, 30})
    EXPECT_EQ(lazy.logits({{ids(tokens)}}), plain.logits({{ids(tokens)}})) << tokens;
  EXPECT_EQ(lazy.logits({{ids(31), 30}}), plain.logits({{ids(31), 30}}));
}

TEST(WarmUp, EverySizeIsCapturedOnFirstUse) {
  RunnerBench lazy = make_captured("llama", lazy_options(CaptureMode::kLazy));
  for (const std::int64_t tokens : {3, 9, 30}) lazy.logits({{ids(tokens)}});
  lazy.logits({{ids(31), 30}});
  EXPECT_THAT(lazy.runner->prefill().report().captured, ElementsAre(4, 16, 40));
  EXPECT_THAT(lazy.runner->decode().report().captured, ElementsAre(1));
}

TEST(WarmUp, EverySizeIsCapturedInIdleMoments) {
  RunnerOptions options = lazy_options(CaptureMode::kCore);
  options.prefill_sizes = {4, 9, 10, 12, 16, 40};
  RunnerBench lazy = make_captured("llama", options);
  lazy.logits({{ids(30)}}, testing::Rows::kLast);  // leaves a prefix in the KV cache, which idle work must not change
  RunnerBench plain = make_captured("llama", small_options());
  plain.logits({{ids(30)}}, testing::Rows::kLast);
  while (*lazy.runner->idle_work()) {
  }
  expect_all_captured(*lazy.runner);
  EXPECT_EQ(lazy.logits({{ids(31), 30}}), plain.logits({{ids(31), 30}}));
}

// The warm-up forward has one token, so it runs the variant for one row in each of three layers. A prefill size and a
// decode size with the same number of rows share a variant.
TEST(WarmUp, RunsEachKernelVariantOnce) {
  make_captured("llama", lazy_options(CaptureMode::kEager));
  EXPECT_THAT(runs, ElementsAre(Pair(1, 3), Pair(2, 1), Pair(4, 1), Pair(16, 1), Pair(40, 1)));
}

TEST(WarmUp, RanksWarmUpTogether) {
  const KernelTable kernels = cpu_kernels().with(
      {.op = "silu_mul", .name = "meets ranks", .bind = [](const BindArgs& args) -> Result<std::unique_ptr<BoundOp>> {
         return std::make_unique<MeetsRanks>(TRY((*cpu_kernels().get("silu_mul"))->bind(args)), args.results[0],
                                             args.context.communicator);
       }});
  const std::vector<std::unique_ptr<Communicator>> group = Communicator::create_group(2);
  std::array<std::vector<float>, 2> logits;
  const auto run = [&](std::size_t rank) {
    RunnerOptions options = small_options();
    options.kernels = &kernels;
    options.communicator = group[rank].get();
    RunnerBench bench = make_captured("llama", options);
    expect_all_captured(*bench.runner);
    logits[rank] = bench.logits({{ids(9)}});
  };
  std::thread other(run, 1);
  run(0);
  other.join();
  EXPECT_TRUE(group[0]->status().ok()) << group[0]->status().to_string();
  EXPECT_EQ(logits[0], logits[1]);
  EXPECT_FALSE(logits[0].empty());
}

// In this test, a dummy batch that fills the largest captured size would need more requests than max_requests.
TEST(WarmUp, TakesSizesThatNeedTooManyRequests) {
  RunnerOptions options = lazy_options(CaptureMode::kEager);
  options.max_requests = 2;
  options.context_length = 16;
  expect_all_captured(*make_captured("llama", options).runner);
}

}  // namespace
}  // namespace tessera
