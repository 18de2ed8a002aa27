// Catches: a default, sliding window, RoPE, mixture of experts or activation of GPT-OSS that is read differently than
// in transformers; values that the graph does not implement but that are accepted.
#include "tessera/model/config/config_test_util.h"
#include "tessera/model/model.h"
#include "tessera/model/test_support.h"
#include "tessera/ops/built_in_ops.h"

namespace tessera {
namespace {

using test::expect_error;
using test::parameters_of;
using ::testing::Each;
using ::testing::ElementsAre;

constexpr const char* kGptOss = "GptOssForCausalLM";
constexpr auto kInvalid = StatusCode::kInvalidArgument;
constexpr auto kUnsupported = StatusCode::kUnimplemented;
// A member that every config from small() needs here, because small() has 4 heads, and 4 is not divisible by GPT-OSS's
// default of 8 key-value heads.
constexpr const char* kHeads = R"("num_key_value_heads": 2)";

std::string with(const std::string& changes) { return "{" + std::string(kHeads) + changes + "}"; }
Result<ModelConfig> try_read(const std::string& changes) { return test::small(kGptOss, with(changes).c_str()); }
ModelConfig read_gpt_oss(const std::string& changes = "") {
  const Result<ModelConfig> config = try_read(changes);
  EXPECT_TRUE(config.ok()) << config.status().message();
  return config.value();
}

TEST(GptOssConfig, TakesDefaults) {
  const ModelConfig config = read_gpt_oss();
  EXPECT_EQ(config.head_dim, 64);
  EXPECT_EQ(config.rms_norm_eps, 1e-5);
  EXPECT_TRUE(config.attention_sinks && config.qkv_bias && config.o_bias);
  EXPECT_FALSE(config.tie_word_embeddings || config.mlp_bias);
  EXPECT_THAT(config.sliding_windows, ElementsAre(128, 0, 128, 0));
  const RopeConfig rope{.type = RopeType::kYarn,
                        .theta = 1.5e5,
                        .factor = 32,
                        .original_max_position_embeddings = 4096,
                        .truncate = false};
  EXPECT_EQ(config.rope, rope) << "where the file names no variant";
  EXPECT_EQ(config.moe->num_experts, 128);
  EXPECT_EQ(config.moe->experts_per_token, 4);
  EXPECT_EQ(config.moe->intermediate_size, 160) << "intermediate_size is an expert's";
  EXPECT_EQ(config.moe->swiglu_limit, 7);
  EXPECT_TRUE(config.moe->normalise && config.moe->router_bias && config.moe->expert_bias);
  EXPECT_EQ(config.moe->scoring, RouterScoring::kSoftmax);
  EXPECT_THAT(config.moe->layers, Each(true));
}

TEST(GptOssConfig, ReadsEachField) {
  EXPECT_FALSE(read_gpt_oss(R"(, "attention_bias": false)").o_bias);
  EXPECT_THAT(read_gpt_oss(R"(, "sliding_window": 24)").sliding_windows, ElementsAre(24, 0, 24, 0));
  EXPECT_THAT(
      read_gpt_oss(R"(, "sliding_window": 24, "layer_types": ["full_attention", "full_attention", "sliding_attention",
                      "full_attention"])")
          .sliding_windows,
      ElementsAre(0, 0, 24, 0));
  EXPECT_THAT(read_gpt_oss(R"(, "sliding_window": null)").sliding_windows, Each(0));
  EXPECT_EQ(read_gpt_oss(R"(, "num_local_experts": 32)").moe->num_experts, 32);
  EXPECT_EQ(read_gpt_oss(R"(, "num_experts": 16)").moe->num_experts, 16);
  EXPECT_EQ(read_gpt_oss(R"(, "num_experts_per_tok": 2, "experts_per_token": 2)").moe->experts_per_token, 2);
  EXPECT_EQ(read_gpt_oss(R"(, "swiglu_limit": 5.5)").moe->swiglu_limit, 5.5);
  EXPECT_EQ(read_gpt_oss(R"(, "swiglu_alpha": 1.702)").moe->swiglu_limit, 7);
  const RopeConfig other_theta = read_gpt_oss(R"(, "rope_theta": 1e4)").rope;
  EXPECT_EQ(other_theta.theta, 1e4);
  EXPECT_EQ(other_theta.type, RopeType::kYarn);
  EXPECT_EQ(read_gpt_oss(R"(, "rope_scaling": {"rope_type": "default"})").rope, RopeConfig{.theta = 1.5e5});
}

TEST(GptOssConfig, ReadsExpertsInFourBits) {
  EXPECT_FALSE(read_gpt_oss().moe->mxfp4);
  const ModelConfig packed = read_gpt_oss(R"(, "quantization_config": {"quant_method": "mxfp4"})");
  EXPECT_TRUE(packed.moe->mxfp4);
  EXPECT_EQ(parameters_of(packed), parameters_of(read_gpt_oss())) << "a byte is two parameters";
  EXPECT_TRUE(
      read_gpt_oss(R"(, "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]})")
          .moe->mxfp4);
}

TEST(GptOssConfig, RefusesTwoDescriptionsOfItsExperts) {
  const Json config =
      test::small_config(kGptOss, with(R"(, "quantization_config": {"quant_method": "mxfp4"})").c_str());
  const Json beside = *Json::parse(R"({"quantization": {"quant_algo": "NVFP4"}})", "beside");
  expect_error(ModelConfig::from_json(config, "m/config.json", built_in_families(), &beside), kUnsupported,
               {"m/config.json", "quantization_config", "hf_quant_config.json"});
}

TEST(GptOssConfig, PublishedModelHasItsKnownSize) {
  const auto file = test::shared_dir() / "data/configs/aiconfigurator/openai--gpt-oss-20b_config.json";
  TESSERA_SKIP_WITHOUT(file);
  const Result<ModelConfig> config = ModelConfig::read(file.string(), built_in_families());
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_TRUE(config->moe->mxfp4);
  EXPECT_EQ(config->moe->num_experts, 32);
  EXPECT_FALSE(config->rope.truncate);
  EXPECT_EQ(parameters_of(*config), 20'914'757'184) << "20.91 billion by its model card";
}

TEST(GptOssConfig, RefusesWithFileFieldValueAndWhatIsAccepted) {
  struct Case {
    const char* changes;
    StatusCode code;
    std::vector<std::string> parts;
  };
  const Case cases[] = {
      {R"(, "sliding_window": 0)", kInvalid, {"\"sliding_window\" is 0"}},
      {R"(, "layer_types": ["full_attention"])", kInvalid, {"layer_types", "num_hidden_layers (4)"}},
      {R"(, "layer_types": ["full_attention", "full_attention", "chunked_attention", "full_attention"])",
       kUnsupported,
       {"layer_types", "\"sliding_attention\""}},
      {R"(, "num_local_experts": 1025)", kInvalid, {"\"num_local_experts\" is 1025"}},
      {R"(, "num_local_experts": 3)", kInvalid, {"num_experts_per_tok", "of 3 experts"}},
      {R"(, "num_local_experts": 8, "num_experts_per_tok": 9)", kInvalid, {"\"num_experts_per_tok\" is 9", "[1, 8]"}},
      {R"(, "num_local_experts": 8, "num_experts": 9)", kInvalid, {"\"num_experts\" is 9", "num_local_experts (8)"}},
      {R"(, "experts_per_token": 2)", kInvalid, {"\"experts_per_token\" is 2", "num_experts_per_tok (4)"}},
      {R"(, "swiglu_limit": 0)", kInvalid, {"\"swiglu_limit\" is 0"}},
      {R"(, "swiglu_alpha": 1.5)", kUnsupported, {"\"swiglu_alpha\" is 1.5", "1.702"}},
      {R"(, "hidden_act": "gelu")", kUnsupported, {"\"hidden_act\" is \"gelu\"", "silu"}},
      {R"(, "quantization_config": {"quant_method": "fp8"})",
       kUnsupported,
       {"\"quantization_config.quant_method\" is \"fp8\"", "mxfp4"}},
      {R"(, "quantization_config": {})", kUnsupported, {"quantization_config.quant_method", "missing"}},
      {R"(, "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.mlp"]})",
       kUnsupported,
       {"quantization_config.modules_to_not_convert", "lm_head"}},
      {R"(, "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": "lm_head"})",
       kInvalid,
       {"quantization_config.modules_to_not_convert", "a list"}},
      {R"(, "quantization_config": "mxfp4")", kInvalid, {"\"quantization_config\" is \"mxfp4\"", "an object"}},
      {R"(, "hidden_size": 72, "quantization_config": {"quant_method": "mxfp4"})",
       kInvalid,
       {"\"hidden_size\" is 72", "multiple of 32"}},
      {R"(, "intermediate_size": 100, "quantization_config": {"quant_method": "mxfp4"})",
       kInvalid,
       {"\"intermediate_size\" is 100", "multiple of 32"}},
      {R"(, "attention_bias": 1)", kInvalid, {"\"attention_bias\" is 1"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.changes);
    std::vector<std::string> parts = c.parts;
    parts.insert(parts.end(), {"m/config.json", "accepted: "});
    expect_error(try_read(c.changes), c.code, parts);
  }
}

}  // namespace
}  // namespace tessera
