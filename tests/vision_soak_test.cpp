// Catches, for models with a vision tower: a soak test that never uses an image; a soak test that never reuses an
// image; a soak test that does not notice when the stored embedding rows of an image are overwritten while the image
// may still be reused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "golden.h"
#include "golden_cases.h"
#include "tessera/engine/engine_options.h"
#include "tessera/engine/plan/engine_plan.h"
#include "tessera/model/weights/checkpoint.h"
#include "tessera/ops/contract/op_test_util.h"
#include "tessera/runner/verify/soak.h"

namespace tessera {
namespace {

using ::testing::IsEmpty;

class VisionSoak : public ::testing::TestWithParam<const char*> {
 protected:
  static std::unique_ptr<ModelRunner> make_runner() {
    const std::string folder = testing::golden_path(GetParam());
    EngineOptions options{.model_path = folder, .device = testing::test_device_name(), .dtype = "float32"};
    options.context_length = 256;
    options.max_running_requests = 4;
    options.chunked_prefill_size = 48;
    options.graphs.piecewise_tokens = {4, 16, 48};
    options.graphs.measure_costs = false;
    Device& device = testing::test_device();
    Result<EnginePlan> plan = plan_engine(options, device);
    EXPECT_TRUE(plan.ok()) << plan.status().to_string();
    if (!plan.ok()) return nullptr;
    Weights weights = *Weights::load(plan->graphs.weights, checkpoint_source(*Checkpoint::open(folder)), device, false);
    Result<std::unique_ptr<ModelRunner>> runner =
        ModelRunner::create(std::move(plan->graphs), std::move(weights), device, std::move(plan->runner));
    EXPECT_TRUE(runner.ok() && (*runner)->capture().ok()) << runner.status().to_string();
    return runner.ok() ? *std::move(runner) : nullptr;
  }
};

TEST_P(VisionSoak, EncodesKeepsAndReusesImages) {
  const std::unique_ptr<ModelRunner> runner = make_runner();
  ASSERT_NE(runner, nullptr);
  const Result<SoakReport> soaked = soak(*runner, {.batches = 100, .seed = 3});
  ASSERT_TRUE(soaked.ok()) << soaked.status().to_string();
  const SoakReport& report = *soaked;
  EXPECT_THAT(report.failures, IsEmpty());
  EXPECT_EQ(report.batches, 100);
  EXPECT_GT(report.images.encoded, 10);
  EXPECT_GT(report.images.cache_hits, 3);
  EXPECT_GT(report.images.graph_forwards, 5);
  EXPECT_EQ(report.images.eager_forwards, 0);
  EXPECT_GT(report.finished, 0);
}

TEST_P(VisionSoak, FindsOverwrittenRows) {
  const std::unique_ptr<ModelRunner> runner = make_runner();
  ASSERT_NE(runner, nullptr);
  SoakImages images(*runner, /*first_row=*/0, runner->embedding_rows(), /*tolerance=*/1e-5);
  SoakWorld world(runner->options(), runner->model().graphs.body.cache_groups, runner->vocab_size(),
                  runner->embedding_row_values(), /*seed=*/5);
  while (images.report().encoded < 6) ASSERT_EQ(*images.next(world), "");
  const auto bytes = static_cast<std::size_t>(runner->embedding_rows() * runner->embedding_row_bytes());
  ASSERT_TRUE(runner->stream().fill(runner->embeddings_base(), 0, bytes).ok());
  std::string differs;
  for (int i = 0; i < 100 && differs.empty(); ++i) differs = *images.next(world);
  EXPECT_EQ(differs, "rows of an image that is kept were written over");
}

INSTANTIATE_TEST_SUITE_P(Goldens, VisionSoak,
                         ::testing::Values("qwen2-vl", "qwen2.5-vl", "qwen3-vl", "qwen3-vl-moe", "qwen3.5-vl"),
                         testing::case_name);

}  // namespace
}  // namespace tessera
