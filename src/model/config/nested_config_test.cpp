// Catches: a nested config that is read from the wrong object; an unhelpful error for an unknown architecture.
#include <gtest/gtest.h>

#include "tessera/model/config/config_test_util.h"
#include "tessera/model/test_support.h"

namespace tessera {
namespace {

using test::expect_error;
using test::small;
using test::small_config;

// A field is taken from the outer object only if "text_config" lacks it.
TEST(ModelConfig, ReadsTheTextModelOfANestedConfig) {
  const auto nested = [](const char* outer) {
    Json json = small_config("LlamaForCausalLM", outer);
    json.set("text_config",
             small_config("ignored", R"({"hidden_size": 32, "rms_norm_eps": 0.5e-5, "dtype": "float16"})"));
    return ModelConfig::from_json(json, "m/config.json", built_in_families());
  };
  const Result<ModelConfig> config = nested(R"({"hidden_size": 128, "dtype": "float32", "tie_word_embeddings": true})");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->architecture, "LlamaForCausalLM");
  EXPECT_EQ(config->hidden_size, 32);
  EXPECT_EQ(config->rms_norm_eps, 0.5e-5);
  EXPECT_EQ(config->dtype, StoredDtype::kF16);
  EXPECT_TRUE(config->tie_word_embeddings);
  EXPECT_EQ(nested(R"({"quantization_config": {"quant_method": "fp8"}})")->formats.method(), "fp8");
  expect_error(nested(R"({"quantization_config": {}})"), StatusCode::kUnimplemented, {"quantization_config"});
  expect_error(small("LlamaForCausalLM", R"({"text_config": 3})"), StatusCode::kInvalidArgument, {"text_config", "3"});
}

TEST(ModelConfig, NamesTheNearestArchitecture) {
  expect_error(small("LLamaForCasualLM"), StatusCode::kUnimplemented,
               {"LLamaForCasualLM", "nearest: LlamaForCausalLM"});
}

}  // namespace
}  // namespace tessera
