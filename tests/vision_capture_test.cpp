// A budget is the size of a tower's graph in patches. Catches: budgets that are captured at the wrong time (a start
// that waits for all of them, a request that waits for one, a budget that is never captured); an image that is padded
// to a larger budget although measurements do not show that this is faster; graphs that the memory plan omits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "golden.h"
#include "tessera/engine/engine.h"
#include "tessera/ops/contract/op_test_util.h"
#include "tessera/runner/capture/capture_plan.h"
#include "tessera/runner/verify/verify_vision.h"
#include "tessera/runner/vision/vision_runner.h"

namespace tessera {
namespace {

using testing::golden_path;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr const char* kModel = "qwen3-vl";

EngineOptions options_for(CaptureMode mode) {
  EngineOptions options{.model_path = golden_path(kModel), .device = testing::test_device_name(), .dtype = "float32"};
  options.context_length = 96;  // allows 384 patches: 6 budgets
  options.max_running_requests = 2;
  options.chunked_prefill_size = 32;
  options.graphs.piecewise_tokens = {8, 32};
  options.graphs.decode_batches = {1, 2};
  options.graphs.capture = mode;
  return options;
}

class VisionCapture : public ::testing::Test {
 protected:
  void start(const EngineOptions& options) {
    Result<std::unique_ptr<Engine>> made = Engine::create(options);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    engine_ = *std::move(made);
    tower_ = engine_->runner().vision();
    ASSERT_NE(tower_, nullptr);
    Result<std::unique_ptr<Allocation>> rows = engine_->runner().device().allocate(
        static_cast<std::size_t>(tower_->options().max_patches / tower_->config().merged_patches() *
                                 tower_->row_values()) *
            sizeof(float),
        "rows");
    ASSERT_TRUE(rows.ok());
    rows_ = *std::move(rows);
  }
  // Returns the rows of an image of `patches` patches. Sets size_ to the size of the forward that computed the image.
  std::vector<float> encode(std::int64_t patches) {
    const VisionConfig& config = tower_->config();
    Patches image{.grid = {.t = 1, .h = 2, .w = static_cast<std::int32_t>(patches / 2)},
                  .merge_size = static_cast<std::int32_t>(config.merge_size),
                  .patch_values = config.patch_values()};
    for (std::int64_t i = 0; i < patches * image.patch_values; ++i)
      image.values.push_back(static_cast<float>(i % 23) / 23 - 0.5F);
    const Patches* const images[] = {&image};
    const std::int64_t first_rows[] = {0};
    const std::int64_t padded = tower_->counters().padded_patches;
    const Status encoded = tower_->encode(images, first_rows, rows_->data());
    EXPECT_TRUE(encoded.ok()) << encoded.to_string();
    size_ = patches + tower_->counters().padded_patches - padded;
    std::vector<float> rows(static_cast<std::size_t>(image.tokens() * tower_->row_values()));
    EXPECT_TRUE(tower_->stream().download(rows.data(), rows_->data(), rows.size() * sizeof(float)).ok());
    EXPECT_TRUE(tower_->stream().synchronize().ok());
    return rows;
  }
  const std::vector<std::int64_t>& captured() const { return tower_->runner().report().captured; }
  bool work() {
    const Result<bool> left = engine_->idle_work();
    EXPECT_TRUE(left.ok()) << left.status().to_string();
    return left.ok() && *left;
  }

  std::unique_ptr<Engine> engine_;
  VisionRunner* tower_ = nullptr;
  std::unique_ptr<Allocation> rows_;
  std::int64_t size_ = 0;
};

TEST_F(VisionCapture, EveryBudgetAtTheStart) {
  start(options_for(CaptureMode::kEager));
  EXPECT_EQ(captured(), tower_->options().sizes);
  EXPECT_EQ(captured().size(), 6u);
}

TEST_F(VisionCapture, CapturesAFewAtTheStartAndOthersLater) {
  start(options_for(CaptureMode::kCore));
  const std::vector<std::int64_t> core = core_sizes(tower_->options().sizes);
  EXPECT_EQ(core.size(), 4u);
  EXPECT_EQ(captured(), core);
  EXPECT_TRUE(engine_->captures_when_idle());

  const std::vector<float> eagerly = encode(300);
  EXPECT_EQ(tower_->last_reason(), VisionReason::kNotCaptured);
  EXPECT_EQ(size_, 320);
  EXPECT_EQ(captured(), core) << "a request waited for a capture";
  EXPECT_TRUE(work());
  EXPECT_TRUE(tower_->runner().captured(320)) << "what an image came for is captured first";
  EXPECT_EQ(encode(300), eagerly);
  EXPECT_EQ(tower_->last_reason(), VisionReason::kReplayed);

  while (engine_->captures_when_idle()) ASSERT_TRUE(work());
  EXPECT_EQ(captured(), tower_->options().sizes);
  const Result<std::vector<VerifyRow>> verified = verify_vision(*tower_);
  ASSERT_TRUE(verified.ok()) << verified.status().to_string();
  for (const VerifyRow& row : *verified) EXPECT_EQ(row.difference, "") << row.size << " with " << row.real;
}

TEST_F(VisionCapture, LazyModeCapturesWantedBudgetsOnly) {
  start(options_for(CaptureMode::kLazy));
  EXPECT_THAT(captured(), IsEmpty());
  EXPECT_FALSE(engine_->captures_when_idle());
  encode(100);
  EXPECT_EQ(tower_->last_reason(), VisionReason::kNotCaptured);
  encode(300);
  EXPECT_THAT(captured(), IsEmpty()) << "a request waited for a capture";
  EXPECT_TRUE(work());
  EXPECT_TRUE(work());
  EXPECT_FALSE(tower_->has_wanted());
  EXPECT_THAT(captured(), ::testing::ElementsAre(128, 320));
  EXPECT_THAT(engine_->runner().prefill().report().captured, IsEmpty());
}

TEST_F(VisionCapture, UsesALargerBudgetMeasuredToBeFaster) {
  start(options_for(CaptureMode::kCore));
  ASSERT_FALSE(tower_->runner().captured(320));
  const std::vector<float> eagerly = encode(300);
  EXPECT_EQ(size_, 320);
  tower_->costs().add(RunnerKind::kPrefill, 384, 1.0);
  tower_->costs().add(RunnerKind::kEager, 64, 0.9);
  tower_->costs().add(RunnerKind::kEager, 384, 4.0);
  const std::vector<float> padded = encode(300);
  EXPECT_EQ(tower_->last_reason(), VisionReason::kReplayed);
  EXPECT_EQ(size_, 384);
  EXPECT_LE(testing::distance(padded, eagerly).absolute, 1e-5);
  EXPECT_TRUE(tower_->has_wanted()) << "its own is wanted all the same";
}

TEST_F(VisionCapture, CostsAreMeasuredWhenThereIsNothingToCapture) {
  start(options_for(CaptureMode::kCore));
  int pieces = 0;
  while (work()) ASSERT_LT(++pieces, 200) << "idle work does not end";
  EXPECT_THAT(tower_->costs().sizes(RunnerKind::kPrefill), Not(IsEmpty()));
  EXPECT_EQ(tower_->costs().sizes(RunnerKind::kPrefill), tower_->costs().sizes(RunnerKind::kEager));

  EngineOptions unmeasured = options_for(CaptureMode::kEager);
  unmeasured.graphs.measure_costs = false;
  start(unmeasured);
  EXPECT_FALSE(work());
  EXPECT_TRUE(tower_->costs().empty());
}

TEST_F(VisionCapture, GraphsAreInTheMemoryPlanAndItsBudget) {
  start(options_for(CaptureMode::kEager));
  const MemoryReport memory = engine_->runner().memory();
  const MemoryReport& predicted = engine_->runner().predicted_memory();
  ASSERT_NE(memory.runner(RunnerRole::kVision), nullptr);
  const std::int64_t taken = memory.runner(RunnerRole::kVision)->graph_bytes();
  EXPECT_GT(taken, 0);
  EXPECT_EQ(predicted.runner(RunnerRole::kVision)->sizes.size(), captured().size());
  const Result<EnginePlan> plan = plan_engine(options_for(CaptureMode::kEager), engine_->runner().device());
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  EXPECT_EQ(plan->memory.graph_objects, predicted[MemoryUse::kGraphObjects]);

  EngineOptions bounded = options_for(CaptureMode::kEager);
  bounded.graphs.memory_budget = predicted[MemoryUse::kGraphObjects] - taken / 2;
  start(bounded);
  EXPECT_LE(engine_->runner().predicted_memory()[MemoryUse::kGraphObjects], bounded.graphs.memory_budget);
  EXPECT_LT(captured().size(), 6u);
  EXPECT_EQ(captured().back(), 384) << "the largest saves most";
  EXPECT_THAT(engine_->notes(), ::testing::Contains(HasSubstr("the tower's sizes dropped: ")));
}

// This context allows images of up to 4 400 patches. The budgets must reach this number, because larger images run
// eagerly.
TEST_F(VisionCapture, BudgetsReachTheLargestImage) {
  EngineOptions options = options_for(CaptureMode::kCore);
  options.context_length = 1100;  // allows 4 400 patches
  start(options);
  EXPECT_EQ(tower_->options().sizes.back(), 4400);
  ASSERT_TRUE(tower_->runner().captured(4400));
  encode(4400);
  EXPECT_EQ(tower_->last_reason(), VisionReason::kReplayed);
  EXPECT_EQ(tower_->choose(4200).reason, VisionReason::kNotCaptured);
  while (engine_->captures_when_idle()) ASSERT_TRUE(work());
  EXPECT_EQ(tower_->choose(4200), (VisionChoice{.size = 4352, .graph = true, .reason = VisionReason::kReplayed}));
}

TEST(VisionSizes, PadLittleUpToTheLargest) {
  const std::vector<std::int64_t> sizes = default_vision_sizes(4, 16384);
  EXPECT_EQ(sizes.front(), 64);
  EXPECT_EQ(sizes.back(), 16384);
  EXPECT_LE(sizes.size(), 96U);
  for (std::size_t i = 1; i < sizes.size(); ++i) {
    EXPECT_EQ(sizes[i] % 64, 0);
    const std::int64_t apart = sizes[i] - sizes[i - 1];
    EXPECT_TRUE(apart == 64 || 16 * apart <= sizes[i - 1]) << sizes[i - 1] << " " << sizes[i];
  }
  EXPECT_EQ(default_vision_sizes(4, 100), (std::vector<std::int64_t>{64, 100}));
}

TEST_F(VisionCapture, AFallbackIsCountedLoggedAndInTheInventory) {
  EngineOptions options = options_for(CaptureMode::kEager);
  options.graphs.memory_budget = 1;  // no budget fits
  ::testing::internal::CaptureStderr();
  start(options);
  encode(100);
  encode(100);
  const std::string log = ::testing::internal::GetCapturedStderr();
  const std::string line = "100 patches of 1 images: fallback to eager 128, padding 28: no budget fits the memory";
  EXPECT_THAT(log, HasSubstr(line));
  EXPECT_EQ(log.find(line), log.rfind(line)) << "each reason is warned of once: " << log;
  const EngineStats stats = engine_->stats();
  EXPECT_EQ(stats.images.by_reason.of(VisionReason::kNothingCaptured).forwards, 2);
  ASSERT_TRUE(stats.graphs->vision.has_value());
  EXPECT_THAT(stats.graphs->vision->captured, IsEmpty());

  start(options_for(CaptureMode::kEager));
  EXPECT_EQ(engine_->stats().graphs->vision->captured, tower_->options().sizes);
  EXPECT_EQ(engine_->stats().graphs->vision->graphs, 6);

  EngineOptions off = options_for(CaptureMode::kEager);
  off.graphs.disable_cuda_graph = true;
  start(off);
  encode(100);
  EXPECT_EQ(tower_->last_reason(), VisionReason::kGraphsDisabled);
}

}  // namespace
}  // namespace tessera
