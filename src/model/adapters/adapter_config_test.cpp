// Catches: a module that gets the scale or the LoRA rank of another module; a pattern that matches too many modules; an
// unsupported variant of LoRA that is accepted.
#include "tessera/model/adapters/adapter_config.h"

#include <cmath>

#include "tessera/model/test_support.h"

namespace tessera::test {
namespace {

Result<AdapterConfig> read(const std::string& json) {
  const ScratchDir folder;
  folder.write("adapter_config.json", json);
  return AdapterConfig::read(folder.path());
}

TEST(AdapterConfig, GivesRankAndScale) {
  const Result<AdapterConfig> config = read(R"({"peft_type": "LORA", "r": 8, "lora_alpha": 16, "bias": "none",
      "use_dora": false, "modules_to_save": null, "base_model_name_or_path": "org/base", "target_modules": "all-linear"})");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(*config->rank_of("model.layers.0.self_attn.q_proj"), 8);
  EXPECT_EQ(*config->scale_of("model.layers.0.self_attn.q_proj", 8), 2);
  EXPECT_EQ(config->base_model(), "org/base");
}

TEST(AdapterConfig, DividesByTheRootWithRslora) {
  const Result<AdapterConfig> config = read(R"({"r": 4, "lora_alpha": 6, "use_rslora": true})");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(*config->scale_of("any", 4), 3);
  EXPECT_DOUBLE_EQ(*config->scale_of("any", 2), 6 / std::sqrt(2.0));
}

TEST(AdapterConfig, PatternsMatchEndsOfNamesInOrder) {
  const Result<AdapterConfig> config = read(R"({"r": 16, "lora_alpha": 16,
      "rank_pattern": {"down_proj": 6, "layers\\.0\\.self_attn\\.q_proj": 4, "proj": 99},
      "alpha_pattern": {"^model.layers.1.mlp.up_proj": 40}})");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(*config->rank_of("model.layers.2.mlp.down_proj"), 6);
  EXPECT_EQ(*config->rank_of("model.layers.0.self_attn.q_proj"), 4);
  EXPECT_EQ(*config->rank_of("model.layers.10.self_attn.q_proj"), 16);
  EXPECT_EQ(*config->scale_of("model.layers.1.mlp.up_proj", 16), 2.5);
  EXPECT_EQ(*config->scale_of("model.layers.1.mlp.gate_proj", 16), 1);
}

TEST(AdapterConfig, RefusesKindsByTheirSetting) {
  const std::pair<const char*, const char*> kRefused[] = {{"use_dora", "true"},
                                                          {"modules_to_save", R"(["lm_head", "score"])"},
                                                          {"layer_replication", "[[0, 4], [2, 5]]"},
                                                          {"trainable_token_indices", "[1]"},
                                                          {"alora_invocation_tokens", "[7]"},
                                                          {"lora_bias", "true"},
                                                          {"bias", R"("all")"},
                                                          {"peft_type", R"("IA3")"}};
  for (const auto& [setting, value] : kRefused) {
    const std::string json = std::string(R"({"r": 8, ")") + setting + "\": " + value + "}";
    expect_error(read(json), StatusCode::kUnimplemented, {"adapter_config.json", setting});
  }
}

TEST(AdapterConfig, NamesWrongValues) {
  expect_error(read(R"({"lora_alpha": 8})"), StatusCode::kInvalidArgument, {"\"r\"", "missing"});
  expect_error(read(R"({"r": 8, "modules_to_save": "lm_head"})"), StatusCode::kInvalidArgument, {"modules_to_save"});
  expect_error(read(R"({"r": 0})"), StatusCode::kInvalidArgument, {"\"r\"", "0"});
  expect_error(read(R"({"r": 8, "lora_alpha": -1})"), StatusCode::kInvalidArgument, {"lora_alpha", "-1"});
  expect_error(read(R"({"r": 8, "rank_pattern": {"q_proj": "x"}})"), StatusCode::kInvalidArgument, {"rank_pattern"});
  expect_error(read(R"({"r": 8, "rank_pattern": {"(": 4}})"), StatusCode::kInvalidArgument,
               {"rank_pattern", "regular expression"});
  expect_error(AdapterConfig::read("/nowhere"), StatusCode::kNotFound, {"/nowhere", "adapter_config.json"});
}

}  // namespace
}  // namespace tessera::test
