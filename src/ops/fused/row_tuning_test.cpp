// Tests how the fastest schedule of a row kernel is found. A schedule is how a device divides the rows among threads.
// Catches: a slower schedule that is kept; a faster schedule that is not used; a schedule that is used although its
// results have other bits; a chosen schedule that the kernel does not use when it is bound later; a disturbed
// measurement that is kept.
#include "tessera/ops/fused/row_tuning.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <thread>

#include "tessera/base/log.h"
#include "tessera/device/cpu/cpu_device.h"

namespace tessera {
namespace {

// Doubles its operand. A run with schedule s takes 100 · (s mod 9) microseconds. Schedule 9 gives wrong results.
class SlowCode final : public RowKernelCode {
 public:
  explicit SlowCode(std::vector<std::int64_t> schedules) : schedules_(std::move(schedules)) {}
  std::int64_t rows(const BindArgs& args) const override { return args.operands[0].rows(); }
  std::vector<std::int64_t> schedules(const BindArgs&) const override { return schedules_; }
  Result<std::unique_ptr<BoundOp>> bind(const BindArgs& args, std::int64_t schedule) const override {
    return std::make_unique<Op>(args.operands[0], args.results[0], schedule);
  }

 private:
  class Op final : public BoundOp {
   public:
    Op(const TensorView& x, const TensorView& y, std::int64_t schedule) : x_(x), y_(y), schedule_(schedule) {}
    Status enqueue(Stream& stream) const override {
      return as_cpu(stream).launch("slow", [this] {
        std::this_thread::sleep_for(std::chrono::microseconds(100 * (schedule_ % 9)));
        for (std::int64_t i = 0; i < x_.elements(); ++i) y_.as<float>()[i] = 2 * x_.as<float>()[i];
        if (schedule_ == 9) y_.as<float>()[0] = 0.5F;
      });
    }

   private:
    TensorView x_, y_;
    std::int64_t schedule_;
  };
  std::vector<std::int64_t> schedules_;
};

class RowTuning : public ::testing::Test {
 protected:
  static TensorView tensor(Allocation& memory, std::int64_t rows) {
    return {.data = memory.data(), .dtype = ir::DType::kFloat32, .rank = 2, .dims = {rows, 16}};
  }
  // Binds a kernel for `rows` rows, and returns the milliseconds of a run, which identify the schedule.
  double bind_and_run(const std::shared_ptr<const RowKernelCode>& code, std::int64_t rows) {
    const auto stream = device_->create_stream("test").value();
    const auto x = device_->allocate(static_cast<std::size_t>(rows) * 64, "x").value();
    const auto y = device_->allocate(static_cast<std::size_t>(rows) * 64, "y").value();
    std::memset(x->data().raw(), 0, static_cast<std::size_t>(rows) * 64);
    const TensorView operands[] = {tensor(*x, rows)};
    const TensorView results[] = {tensor(*y, rows)};
    const ir::Node node;
    const ForwardContext context;
    const BindArgs args{.node = node, .operands = operands, .results = results, .device = *device_, .context = context};
    const auto bound = bind_row_kernel(code, std::string(32, 'a'), "doubled", args, known_);
    EXPECT_TRUE(bound.ok()) << bound.status().to_string();
    const auto began = std::chrono::steady_clock::now();
    EXPECT_TRUE((*bound)->enqueue(*stream).ok());
    EXPECT_TRUE(stream->synchronize().ok());
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - began).count();
  }
  bool measure() {
    const Result<bool> measured = measure_row_schedules(*device_, known_);
    EXPECT_TRUE(measured.ok()) << measured.status().to_string();
    return measured.ok() && *measured;
  }

  std::unique_ptr<CpuDevice> device_ = CpuDevice::create({.threads = 1}).value();
  RowSchedules known_;
};

TEST_F(RowTuning, TheFastestServesLaterBinds) {
  const auto code = std::make_shared<SlowCode>(std::vector<std::int64_t>{4, 2, 3});
  EXPECT_GE(bind_and_run(code, 4), 0.4) << "nothing is measured yet";
  EXPECT_TRUE(measure());
  EXPECT_FALSE(measure());
  const RowProblem problem{.kernel = std::string(32, 'a'), .rows = 4};
  EXPECT_EQ(known_.chosen(problem), 2);
  const MeasuredSchedules found = known_.measured().at(problem);
  EXPECT_EQ(found.name, "doubled");
  ASSERT_EQ(found.us.size(), 3U);
  EXPECT_EQ(found.us[0].first, 4) << "what it was chosen against is kept";
  EXPECT_GE(found.us[0].second, 400);
  EXPECT_GE(found.us[2].second, 300);
  bind_and_run(code, 4);
  EXPECT_FALSE(measure()) << "measured once";
  bind_and_run(code, 5);
  EXPECT_TRUE(measure()) << "another size is another problem";
}

TEST_F(RowTuning, ASlowerScheduleChangesNothing) {
  bind_and_run(std::make_shared<SlowCode>(std::vector<std::int64_t>{2, 6}), 4);
  EXPECT_FALSE(measure()) << "the code is gone with its engine";
  const auto code = std::make_shared<SlowCode>(std::vector<std::int64_t>{2, 6});
  bind_and_run(code, 7);
  EXPECT_TRUE(measure());
  EXPECT_EQ(known_.chosen({.kernel = std::string(32, 'a'), .rows = 7}), 2);
}

TEST_F(RowTuning, AScheduleWithOtherBitsIsNotUsed) {
  const auto code = std::make_shared<SlowCode>(std::vector<std::int64_t>{5, 9});
  bind_and_run(code, 4);
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(measure());
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("gives other bits"), std::string::npos);
  EXPECT_EQ(known_.chosen({.kernel = std::string(32, 'a'), .rows = 4}), 5);
}

// A schedule is never three times as fast as another. If a schedule seems to be that much faster, another process used
// the core while the slower schedule was timed.
TEST_F(RowTuning, ADisturbedMeasurementIsNotKept) {
  const auto code = std::make_shared<SlowCode>(std::vector<std::int64_t>{8, 18});  // waits 800 and 0 µs
  bind_and_run(code, 4);
  EXPECT_FALSE(measure());
  EXPECT_TRUE(known_.measured().empty());
}

TEST_F(RowTuning, KernelsWithOneScheduleAreNotMeasured) {
  const auto code = std::make_shared<SlowCode>(std::vector<std::int64_t>{1});
  bind_and_run(code, 4);
  EXPECT_FALSE(measure());
  EXPECT_TRUE(known_.measured().empty());
}

}  // namespace
}  // namespace tessera
