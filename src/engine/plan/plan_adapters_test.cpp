// Catches: a start that accepts adapters that the messages between nodes cannot carry, so that a forward then refuses
// them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/testing/scratch_dir.h"
#include "tessera/engine/plan/engine_plan_test_util.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Plans rank 0 of two ranks for a model whose head takes 16 GB.
Status plan_large(int nodes, const std::vector<std::string>& saved) {
  const test::ScratchDir folder;
  Json config = *Json::read_file(test::kGoldens + "llama/config.json");
  config.set("vocab_size", 2'000'000);
  config.set("hidden_size", 2048);
  config.set("num_attention_heads", 16);
  config.set("num_key_value_heads", 16);
  config.set("head_dim", 128);
  folder.write("config.json", config.dump());
  DeviceProperties device = test::cpu();
  device.memory_bytes = 1024 * test::kGiB;
  return test::try_plan(
             [&](EngineOptions& options) {
               options.model_path = folder.path();
               options.load_format = LoadFormat::kDummy;
               options.tp_size = 2;
               options.nnodes = nodes;
               if (nodes > 1) options.dist_init_addr = "127.0.0.1:29500";
               options.adapters = {.enabled = true, .limits = {.slots = 1, .saved = saved}, .paths = {}};
             },
             device)
      .status();
}

TEST(PlanAdapters, RefusesSharesThatNoMessageCarries) {
  const Status status = plan_large(2, {"lm_head"});
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("lora_modules_to_save"), HasSubstr("one message")));
  EXPECT_EQ(plan_large(2, {}).to_string(), ok_status().to_string());
  EXPECT_EQ(plan_large(1, {"lm_head"}).to_string(), ok_status().to_string());
}

}  // namespace
}  // namespace tessera
