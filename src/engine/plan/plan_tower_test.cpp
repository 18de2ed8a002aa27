// Catches: a vision tower whose largest forward is smaller than the images that the model's processor makes, or larger
// than the memory allows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/json.h"
#include "tessera/base/testing/scratch_dir.h"
#include "tessera/device/testing/described_device.h"
#include "tessera/device/testing/environment.h"
#include "tessera/engine/engine_options.h"
#include "tessera/engine/plan/engine_plan.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::int64_t kTowerGiB = std::int64_t{1} << 30;

EnginePlan plan_of(const std::string& model_path, std::int64_t memory_bytes, std::int64_t context_length = 0) {
  EngineOptions options{.model_path = model_path};
  options.max_total_tokens = 4096;
  options.context_length = context_length;
  testing::DescribedDevice device({.name = "test", .memory_bytes = memory_bytes, .threads = 2});
  Result<EnginePlan> plan = plan_engine(options, device);
  EXPECT_TRUE(plan.ok()) << plan.status().to_string();
  return plan.ok() ? *std::move(plan) : EnginePlan{};
}

// The processor makes images of up to 65 536 patches. A tower's forward over such an image needs several
// hundred MiB with this model.
TEST(PlanTower, TakesTheLargestImageThatFits) {
  const test::ScratchDir model;
  Json config = *Json::read_file(testing::data_path("goldens/qwen2.5-vl/config.json"));
  Json text = *config.find("text_config");
  text.set("max_position_embeddings", 32768);
  config.set("text_config", std::move(text));
  model.write("config.json", config.dump());
  model.write("preprocessor_config.json",
              R"({"patch_size": 4, "merge_size": 2, "temporal_patch_size": 2, "max_pixels": 1048576})");
  const EnginePlan whole = plan_of(model.path(), 8 * kTowerGiB);
  EXPECT_EQ(whole.runner.vision.max_patches, 65536);
  EXPECT_EQ(whole.runner.vision.sizes.back(), 65536);
  EXPECT_THAT(whole.notes, Not(Contains(HasSubstr("images are resized"))));

  const EnginePlan part = plan_of(model.path(), kTowerGiB);
  EXPECT_LT(part.runner.vision.max_patches, 65536);
  EXPECT_GE(part.runner.vision.max_patches, 16384);
  EXPECT_THAT(part.notes, Contains(AllOf(HasSubstr("images are resized"), HasSubstr("not the 65536"))));

  const EnginePlan of_context = plan_of(model.path(), 8 * kTowerGiB, 2048);
  EXPECT_EQ(of_context.runner.vision.max_patches, 4 * 2048);
  EXPECT_THAT(of_context.notes, Not(Contains(HasSubstr("images are resized"))));
}

TEST(PlanTower, PacksAsManyPatchesWhereImagesAreSmall) {
  const EnginePlan plan = plan_of(testing::data_path("goldens/qwen2.5-vl"), 8 * kTowerGiB);
  EXPECT_EQ(plan.runner.vision.max_patches, 4 * 4096) << "of the context";
}

}  // namespace
}  // namespace tessera
