// Catches: a start with speculative_algorithm AUTO that chooses drafts although the model or an option excludes them,
// chooses no drafts although it could, fails, or does not say what it chose.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/device/testing/described_device.h"
#include "tessera/engine/engine_test_util.h"
#include "tessera/engine/plan/engine_plan.h"

namespace tessera {
namespace {

using test::make_engine;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

constexpr const char* kPlain = "speculative_algorithm: AUTO decodes without drafts";

EngineOptions with_auto(const char* model) {
  EngineOptions options = test::small_options();
  options.model_path = testing::data_path(model);
  options.deterministic = true;
  options.max_running_requests = 32;
  options.drafts.source = DraftSource::kAuto;
  return options;
}

TEST(AutoDrafts, ALayerOfTheCheckpointDrafts) {
  EngineOptions options = with_auto("drafts/mtp-glm4-moe");
  const std::unique_ptr<Engine> engine = make_engine(options);
  EXPECT_EQ(engine->options().drafts.source, DraftSource::kLayer);
  EXPECT_THAT(engine->notes(), Contains(AllOf(HasSubstr("AUTO drafts by the checkpoint's next-token layer, up to 3 "),
                                              HasSubstr("NONE switches it off"))));
  const Completion done = test::run_one(*engine, test::request(12, 40));
  EXPECT_GT(engine->stats().drafts.drafted, 0);
  options.drafts.source = DraftSource::kNone;
  EXPECT_EQ(done.output_ids, test::run_one(*make_engine(options), test::request(12, 40)).output_ids);
}

TEST(AutoDrafts, StartsWithoutDraftsAndSaysWhy) {
  const auto expect_plain = [](const EngineOptions& options, const char* why) {
    const std::unique_ptr<Engine> engine = make_engine(options);
    ASSERT_NE(engine, nullptr) << why;
    EXPECT_FALSE(engine->options().drafts.any()) << why;
    EXPECT_THAT(engine->notes(), Contains(AllOf(HasSubstr(kPlain), HasSubstr(why))));
    EXPECT_EQ(test::run_one(*engine, test::request(12, 5)).output_ids.size(), 5U) << why;
  };
  expect_plain(with_auto("goldens/llama"), "of LlamaForCausalLM is not supported");
  expect_plain(with_auto("goldens/qwen3"), "the checkpoint has no next-token layer");
  // This checkpoint's config names a next-token layer whose tensors are missing.
  expect_plain(with_auto("goldens/glm4-moe"), "but the checkpoint has none of its tensors, model.layers.3.* or mtp.*");
  EngineOptions options = with_auto("drafts/mtp-glm4-moe");
  options.dp_attention = true;
  testing::DescribedDevice device({.name = "test", .memory_bytes = std::int64_t{8} << 30, .threads = 2});
  const Result<EnginePlan> ranks = plan_engine(options, device);
  ASSERT_TRUE(ranks.ok()) << ranks.status().message();
  EXPECT_THAT(ranks->facts, Contains(AllOf(HasSubstr(kPlain), HasSubstr("enable_dp_attention"))));
}

}  // namespace
}  // namespace tessera
