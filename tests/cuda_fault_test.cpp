// Tests errors of the CUDA driver during capture, instantiation and launch of graphs. Catches: an error that ends the
// program; a batch size of which only some graphs are kept; an error that is reported as a lost device although the
// device is still usable; leaks of driver objects; a wrong or failing forward after the error. The driver is a fake. It
// works in host memory and fails when the test tells it to, so no GPU is needed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "tessera/compile/eager.h"
#include "tessera/device/cuda/cuda_device.h"
#include "tessera/device/cuda/testing/fake_driver.h"
#include "tessera/ir/text.h"
#include "tessera/piecewise/splitter.h"
#include "tessera/runner/graphs/graph_runner.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// An operator that computes y = x by one copy call of the driver.
class Copies final : public BoundOp {
 public:
  explicit Copies(const BindArgs& args) : from_(args.operands[0].data), to_(args.results[0]) {}
  Status enqueue(Stream& stream) const override {
    return stream.copy(to_.data, from_, static_cast<std::size_t>(to_.bytes()));
  }

 private:
  DeviceAddress from_;
  TensorView to_;
};
Result<std::vector<ir::Type>> same_type(const ir::OpSignature& s) { return std::vector{s.operands[0]}; }
const ir::OpDecl kPass{.name = "pass", .summary = "y = x", .operands = {{"x"}}, .infer = same_type};
const ir::OpDecl kCut{
    .name = "cut", .summary = "y = x", .operands = {{"x"}}, .infer = same_type, .split_by_default = true};

Status stage_nothing(std::int64_t /*size*/) { return ok_status(); }

const std::vector<std::int64_t> kSizes = {4, 8};

Status capture_all(GraphRunner& runner) {
  return runner.capture_each(kSizes, /*show_progress=*/false,
                             [&](std::int64_t size) { return runner.capture_one(size, stage_nothing); });
}

// Owns the graphs of two pieces, which the split operator "cut" separates. The graphs are captured for 4 and 8 rows.
class GraphsOnFakeDriver {
 public:
  static constexpr std::int64_t kLargest = 8;

  Status create(const FakeDriver& driver) {
    device_ = TRY(CudaDevice::create({.driver = &driver.table()}));
    stream_ = TRY(device_->create_stream("main"));
    x_ = TRY(device_->allocate(kLargest * 16, "x"));
    externals_.add("x", x_->data());
    arena_ = TRY(device_->create_arena({.reserve_bytes = std::size_t{8} << 20, .name = "arena"}));
    workspace_ = TRY(device_->create_arena({.reserve_bytes = std::size_t{8} << 20, .name = "workspace"}));
    const ir::Graph graph = TRY(ir::parse_graph(R"(graph @copies {
  input %x: f32[T, 4]
  %a: f32[T, 4] = pass(%x)
  %b: f32[T, 4] = cut(%a)
  %c: f32[T, 4] = pass(%b)
  return %c
})",
                                                &ops_));
    StitchingGraph stitched = TRY(split_graph(graph, ops_, std::vector<std::string>{"cut"}));
    const std::unique_ptr<Compiler> compiler =
        make_eager_compiler({.device = *device_, .ops = ops_, .kernels = kernels_});
    runner_ = std::make_unique<GraphRunner>(
        RunnerSpec{
            .graph = {}, .bucket = bucket, .largest = kLargest, .ladder = {4, 8}, .captured = true, .split_ops = {}},
        TRY(Executable::create(std::move(stitched), *compiler,
                               {.device = *device_,
                                .stream = *stream_,
                                .context = context_,
                                .externals = externals_,
                                .arena = *arena_,
                                .workspace = *workspace_,
                                .warm = warm_},
                               {.largest = bucket(kLargest)})));
    return ok_status();
  }

  static ir::Bucket bucket(std::int64_t size) {
    ir::Bucket made;
    made[ir::Symbol::kTokens] = size;
    return made;
  }
  GraphRunner& runner() { return *runner_; }

  // Returns the forward's result for the inputs 1, 2, 3, ….
  Result<std::vector<float>> forward(std::int64_t size, bool replay) {
    std::vector<float> given(static_cast<std::size_t>(size) * 4);
    std::iota(given.begin(), given.end(), 1.0F);
    TRY(stream_->upload(x_->data(), given.data(), given.size() * 4));
    TRY(replay ? runner_->replay(size) : runner_->run(size));
    const OutputView made = TRY(runner_->executable().output(bucket(size), 0));
    std::vector<float> out(given.size());
    TRY(stream_->download(out.data(), made.data, out.size() * 4));
    TRY(stream_->synchronize());
    return out;
  }
  static std::vector<float> right(std::int64_t size) {
    std::vector<float> values(static_cast<std::size_t>(size) * 4);
    std::iota(values.begin(), values.end(), 1.0F);
    return values;
  }

 private:
  ir::OpTable ops_{{&kPass, &kCut}};
  KernelTable kernels_{{{.op = "pass", .name = "test", .bind = bind}, {.op = "cut", .name = "test", .bind = bind}}};
  static Result<std::unique_ptr<BoundOp>> bind(const BindArgs& args) { return std::make_unique<Copies>(args); }

  ForwardContext context_;
  ExternalValues externals_;
  KernelVariants warm_;
  std::unique_ptr<CudaDevice> device_;
  std::unique_ptr<Allocation> x_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<Arena> workspace_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<GraphRunner> runner_;
};

TEST(CudaFaults, OutOfMemoryAtEveryCallThatTakesMemory) {
  for (const char* function : {"cuMemAlloc", "cuMemCreate", "cuMemAddressReserve", "cuMemMap", "cuMemHostAlloc"}) {
    int failures = 0;
    for (int n = 1;; ++n) {
      ASSERT_LT(n, 50) << function;
      FakeDriver driver;
      GraphsOnFakeDriver graphs;
      driver.fail(function, n, CUDA_ERROR_OUT_OF_MEMORY);
      Status started = graphs.create(driver);
      if (started.ok()) started = capture_all(graphs.runner());
      const bool past_the_last = driver.faults() == 0;
      if (!started.ok()) {
        ++failures;
        EXPECT_EQ(started.code(), StatusCode::kResourceExhausted) << function << " " << n << started.to_string();
        continue;
      }
      // Either nothing failed, or one size was dropped and the others give right results.
      failures += past_the_last ? 0 : 1;
      EXPECT_EQ(graphs.runner().report().dropped.empty(), past_the_last) << function << " " << n;
      for (const std::int64_t size : graphs.runner().report().captured)
        EXPECT_EQ(graphs.forward(size, true).value(), GraphsOnFakeDriver::right(size)) << function << " " << n;
      if (past_the_last) break;
    }
    EXPECT_GT(failures, 0) << function << " is not called any more";
  }
}

class CaptureCall : public ::testing::TestWithParam<const char*> {};

TEST_P(CaptureCall, AFailureDropsItsOwnSizeOnly) {
  for (int n = 1;; ++n) {
    ASSERT_LT(n, 50);
    FakeDriver driver;
    GraphsOnFakeDriver graphs;
    ASSERT_TRUE(graphs.create(driver).ok());
    driver.fail(GetParam(), n, CUDA_ERROR_OUT_OF_MEMORY);
    const Status captured = capture_all(graphs.runner());
    ASSERT_TRUE(captured.ok()) << captured.to_string();
    const CaptureReport& report = graphs.runner().report();
    if (driver.faults() == 0) {
      EXPECT_EQ(n, 5) << "two graphs for each of two sizes";
      EXPECT_EQ(report.captured, kSizes);
      break;
    }
    ASSERT_EQ(report.dropped.size(), 1U) << n;
    const std::int64_t dropped = n <= 2 ? 8 : 4;
    EXPECT_EQ(report.dropped[0].first, dropped);
    EXPECT_EQ(report.dropped[0].second.code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(report.dropped[0].second.message(), HasSubstr("piece"));
    EXPECT_THAT(report.captured, ElementsAre(12 - dropped));
    EXPECT_EQ(graphs.forward(12 - dropped, true).value(), GraphsOnFakeDriver::right(12 - dropped));
    // The dropped size runs without a graph, and can be captured once there is memory again.
    ASSERT_TRUE(graphs.runner().make_ready(dropped).ok());
    EXPECT_EQ(graphs.forward(dropped, false).value(), GraphsOnFakeDriver::right(dropped));
    ASSERT_TRUE(graphs.runner().capture_one(dropped, stage_nothing).ok());
    EXPECT_EQ(graphs.forward(dropped, true).value(), GraphsOnFakeDriver::right(dropped));
  }
}
INSTANTIATE_TEST_SUITE_P(CudaFaults, CaptureCall,
                         ::testing::Values("cuStreamBeginCapture", "cuStreamEndCapture", "cuGraphInstantiate",
                                           "cuGraphUpload"),
                         [](const auto& parameter) { return std::string(parameter.param); });

TEST(CudaFaults, ALaunchAfterAFailedOneIsRight) {
  FakeDriver driver;
  GraphsOnFakeDriver graphs;
  ASSERT_TRUE(graphs.create(driver).ok());
  ASSERT_TRUE(capture_all(graphs.runner()).ok());
  for (int n = 1; n <= 2; ++n) {  // each graph of one forward fails once
    driver.fail("cuGraphLaunch", n, CUDA_ERROR_OUT_OF_MEMORY);
    const Result<std::vector<float>> failed = graphs.forward(4, true);
    EXPECT_EQ(failed.status().code(), StatusCode::kResourceExhausted) << failed.status().to_string();
    EXPECT_THAT(failed.status().message(), HasSubstr(n == 1 ? "piece 0" : "piece 2"));
    EXPECT_EQ(graphs.forward(4, true).value(), GraphsOnFakeDriver::right(4));
    EXPECT_EQ(graphs.forward(4, false).value(), GraphsOnFakeDriver::right(4));
  }
}

TEST(CudaFaults, ALostDeviceEndsTheCapture) {
  FakeDriver driver;
  GraphsOnFakeDriver graphs;
  ASSERT_TRUE(graphs.create(driver).ok());
  driver.fail("cuGraphInstantiate", 2, CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(capture_all(graphs.runner()).code(), StatusCode::kDeviceLost);
}

TEST(CudaFaults, NothingIsLeftOfAStartThatFailed) {
  for (const char* function : {"cuMemCreate", "cuStreamBeginCapture", "cuGraphInstantiate", "cuGraphUpload"}) {
    FakeDriver driver;
    {
      GraphsOnFakeDriver graphs;
      ASSERT_TRUE(graphs.create(driver).ok());
      driver.fail(function, 1, CUDA_ERROR_OUT_OF_MEMORY);
      static_cast<void>(capture_all(graphs.runner()));
      EXPECT_EQ(driver.faults(), 1) << function;
    }
    EXPECT_EQ(driver.live_objects(), 0) << function;
  }
}

}  // namespace
}  // namespace tessera
