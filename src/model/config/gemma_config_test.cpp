// Catches: a default, soft cap, scale, second rotation (RoPE of layers with a sliding window) or order of windowed
// layers that is read differently than in transformers, with the field names of old or new config files; contradictory
// fields that are accepted.
#include <cmath>

#include "tessera/model/config/config.h"
#include "tessera/model/config/config_test_util.h"
#include "tessera/model/family.h"
#include "tessera/model/model.h"
#include "tessera/model/test_support.h"
#include "tessera/ops/built_in_ops.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::parameters_of;
using ::testing::Each;
using ::testing::ElementsAre;

constexpr auto kWrongValue = StatusCode::kInvalidArgument;
constexpr auto kNotServed = StatusCode::kUnimplemented;

// Reads a small config. The members of the JSON object `changes` replace the config's members or are added.
Result<ModelConfig> small_gemma(const char* architecture, const char* changes = "{}") {
  Json json = *Json::parse(R"({"vocab_size": 512, "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 4,
                               "num_attention_heads": 4, "max_position_embeddings": 2048})",
                           "base");
  json.set("architectures", Json(Json::Array{Json(architecture)}));
  const Result<Json> extra = Json::parse(changes, "changes");
  EXPECT_TRUE(extra.ok()) << changes;
  for (const auto& [key, value] : extra->as_object()) json.set(key, value);
  return ModelConfig::from_json(json, "m/config.json", built_in_families());
}

TEST(GemmaConfig, TakesDefaultsOfGemma2) {
  const Result<ModelConfig> read = small_gemma("Gemma2ForCausalLM");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->num_key_value_heads, 4);
  EXPECT_EQ(read->head_dim, 256);
  EXPECT_EQ(read->hidden_act, Activation::kGeluTanh);
  EXPECT_TRUE(read->tie_word_embeddings && read->unit_offset_norms);
  EXPECT_FALSE(read->qkv_bias || read->o_bias || read->sliding_rope);
  EXPECT_EQ(read->qk_norm, QkNorm::kNone);
  EXPECT_EQ(read->attention_scale, 1.0 / 16) << "256 ** -0.5";
  EXPECT_EQ(read->attention_softcap, 50);
  EXPECT_EQ(read->logit_softcap, 30);
  EXPECT_EQ(read->embedding_scale, 8) << "64 ** 0.5";
  EXPECT_EQ(read->rope.theta, 10000);
  EXPECT_THAT(read->sliding_windows, ElementsAre(4096, 0, 4096, 0));
}

TEST(GemmaConfig, TakesDefaultsOfGemma3) {
  const Result<ModelConfig> read = small_gemma("Gemma3ForCausalLM", R"({"num_hidden_layers": 7})");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->head_dim, 256);
  EXPECT_TRUE(read->tie_word_embeddings && read->unit_offset_norms);
  EXPECT_EQ(read->qk_norm, QkNorm::kHead);
  EXPECT_EQ(read->attention_softcap, 0);
  EXPECT_EQ(read->logit_softcap, 0);
  EXPECT_EQ(read->rope, RopeConfig{.theta = 1e6});
  EXPECT_EQ(read->sliding_rope, RopeConfig{.theta = 1e4});
  EXPECT_THAT(read->sliding_windows, ElementsAre(4096, 4096, 4096, 4096, 4096, 0, 4096));
  EXPECT_EQ(read->tensor_prefix, "model.");
}

// The config lacks the fields that equal Hugging Face's defaults, as in the published files of larger models.
TEST(GemmaConfig, ReadsTheTextModelOfGemma3) {
  const Json json = *Json::parse(R"({"architectures": ["Gemma3ForConditionalGeneration"], "eos_token_id": [1, 106],
      "text_config": {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024,
                      "rope_scaling": {"factor": 8.0, "rope_type": "linear"}},
      "torch_dtype": "bfloat16", "vision_config": {"hidden_size": 1152}})",
                                 "nested");
  const Result<ModelConfig> read = ModelConfig::from_json(json, "m/config.json", built_in_families());
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->tensor_prefix, "language_model.model.");
  EXPECT_EQ(read->vocab_size, 262208);
  EXPECT_EQ(read->num_attention_heads, 8);
  EXPECT_EQ(read->num_key_value_heads, 4);
  EXPECT_EQ(read->rope.type, RopeType::kLinear) << "of full attention";
  EXPECT_EQ(read->rope.theta, 1e6);
  EXPECT_EQ(read->sliding_rope, RopeConfig{.theta = 1e4});
  EXPECT_EQ(read->sliding_windows[4], 1024);
  EXPECT_EQ(read->sliding_windows[5], 0);
  EXPECT_EQ(parameters_of(*read), 3'880'263'168) << "without the vision tower";
}

TEST(GemmaConfig, ReadsEachField) {
  const auto gemma2 = [](const char* changes) { return *small_gemma("Gemma2ForCausalLM", changes); };
  EXPECT_EQ(gemma2(R"({"query_pre_attn_scalar": 144})").attention_scale, 1.0 / 12);
  EXPECT_EQ(gemma2(R"({"attn_logit_softcapping": null})").attention_softcap, 0);
  EXPECT_EQ(gemma2(R"({"attn_logit_softcapping": 20})").attention_softcap, 20);
  EXPECT_EQ(gemma2(R"({"final_logit_softcapping": null})").logit_softcap, 0);
  EXPECT_EQ(gemma2(R"({"final_logit_softcapping": 12.5})").logit_softcap, 12.5);
  EXPECT_TRUE(gemma2(R"({"attention_bias": true})").o_bias);
  EXPECT_FALSE(gemma2(R"({"tie_word_embeddings": false})").tie_word_embeddings);
  EXPECT_EQ(gemma2(R"({"hidden_act": "silu", "hidden_activation": "gelu"})").hidden_act, Activation::kGelu);
  EXPECT_EQ(gemma2(R"({"hidden_act": "silu", "hidden_activation": null})").hidden_act, Activation::kSilu);
  EXPECT_THAT(gemma2(R"({"sliding_window": null})").sliding_windows, Each(0));
  EXPECT_THAT(gemma2(R"({"sliding_window": 24})").sliding_windows, ElementsAre(24, 0, 24, 0));

  const auto gemma3 = [](const char* changes) { return *small_gemma("Gemma3ForCausalLM", changes); };
  EXPECT_THAT(gemma3(R"({"sliding_window_pattern": 2})").sliding_windows, ElementsAre(4096, 0, 4096, 0));
  EXPECT_THAT(gemma3(R"({"_sliding_window_pattern": 3, "sliding_window": 8})").sliding_windows,
              ElementsAre(8, 8, 0, 8));
  EXPECT_THAT(gemma3(R"({"sliding_window_pattern": 1})").sliding_windows, Each(0));
  EXPECT_THAT(gemma3(R"({"layer_types": ["full_attention", "full_attention", "sliding_attention", "full_attention"]})")
                  .sliding_windows,
              ElementsAre(0, 0, 4096, 0));
  EXPECT_EQ(gemma3(R"({"attn_logit_softcapping": 20})").attention_softcap, 20);
}

TEST(GemmaConfig, ReadsTwoRotations) {
  const auto gemma3 = [](const char* changes) { return *small_gemma("Gemma3ForCausalLM", changes); };
  const ModelConfig old = gemma3(R"({"rope_theta": 5e5, "rope_local_base_freq": 2e4,
                                     "rope_scaling": {"rope_type": "linear", "factor": 8}})");
  EXPECT_EQ(old.rope, (RopeConfig{.type = RopeType::kLinear, .theta = 5e5, .factor = 8}));
  EXPECT_EQ(old.sliding_rope, RopeConfig{.theta = 2e4});
  const ModelConfig both = gemma3(R"({"rope_parameters": {
      "full_attention": {"rope_theta": 5e5, "rope_type": "linear", "factor": 8},
      "sliding_attention": {"rope_theta": 2e4, "rope_type": "default"}}})");
  EXPECT_EQ(both.rope, old.rope);
  EXPECT_EQ(both.sliding_rope, old.sliding_rope);
  const ModelConfig without_theta =
      gemma3(R"({"rope_parameters": {"full_attention": {}, "sliding_attention": {"rope_type": "default"}}})");
  EXPECT_EQ(without_theta.rope.theta, 1e6);
  EXPECT_EQ(without_theta.sliding_rope->theta, 1e4);
}

TEST(GemmaConfig, RefusesWithFileFieldValueAndWhatIsAccepted) {
  struct Case {
    const char* architecture;
    const char* changes;
    StatusCode code;
    std::vector<std::string> parts;
  };
  const char* const kGemma2 = "Gemma2ForCausalLM";
  const char* const kGemma3 = "Gemma3ForCausalLM";
  const Case cases[] = {
      {kGemma2, R"({"sliding_window": 0})", kWrongValue, {"\"sliding_window\" is 0"}},
      {kGemma2, R"({"query_pre_attn_scalar": 0})", kWrongValue, {"\"query_pre_attn_scalar\" is 0"}},
      {kGemma2, R"({"attn_logit_softcapping": 0})", kWrongValue, {"\"attn_logit_softcapping\" is 0"}},
      {kGemma2, R"({"final_logit_softcapping": -30})", kWrongValue, {"\"final_logit_softcapping\" is -30"}},
      {kGemma2, R"({"use_bidirectional_attention": true})", kNotServed, {"\"use_bidirectional_attention\" is true"}},
      {kGemma2, R"({"hidden_activation": "relu"})", kNotServed, {"\"hidden_activation\" is \"relu\"", "gelu"}},
      {kGemma2, R"({"layer_types": ["full_attention"]})", kWrongValue, {"layer_types", "num_hidden_layers (4)"}},
      {kGemma2,
       R"({"sliding_window": null, "layer_types": ["sliding_attention", "full_attention", "full_attention",
       "full_attention"]})",
       kWrongValue,
       {"layer_types", "sliding_window is null"}},
      {kGemma3, R"({"sliding_window_pattern": 0})", kWrongValue, {"\"sliding_window_pattern\" is 0"}},
      {kGemma3,
       R"({"_sliding_window_pattern": 2, "layer_types": ["full_attention", "full_attention",
       "sliding_attention", "full_attention"]})",
       kWrongValue,
       {"layer_types", "_sliding_window_pattern is 2"}},
      {kGemma3, R"({"rope_local_base_freq": 0})", kWrongValue, {"\"rope_local_base_freq\" is 0"}},
      {kGemma3,
       R"({"rope_parameters": {"full_attention": {}}})",
       kWrongValue,
       {"rope_parameters.sliding_attention", "missing", "full_attention have one"}},
      {kGemma3,
       R"({"rope_parameters": {"full_attention": {}, "sliding_attention": {"rope_type": "dynamic"}}})",
       kNotServed,
       {"layers of sliding_attention", "rope_parameters.rope_type", "\"dynamic\""}},
      {kGemma2, R"({"rope_parameters": {"full_attention": {}}})", kNotServed, {"rope_parameters.full_attention"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.changes);
    std::vector<std::string> parts = c.parts;
    parts.insert(parts.end(), {"m/config.json", "accepted: "});
    expect_error(small_gemma(c.architecture, c.changes), c.code, parts);
  }
}

TEST(GemmaConfig, PublishedModelsHaveTheirKnownSizes) {
  const fs::path configs = test::shared_dir() / "data" / "configs";
  TESSERA_SKIP_WITHOUT(configs);
  const auto read = [&](const char* name) {
    return *ModelConfig::read((configs / name).string(), built_in_families());
  };
  // The parameter counts are those on the models' cards.
  EXPECT_EQ(parameters_of(read("mlc_preset/gemma2_2b.json")), 2'614'341'888);
  EXPECT_EQ(parameters_of(read("mlc_preset/gemma2_9b.json")), 9'241'705'984);
  EXPECT_EQ(parameters_of(read("mlc_preset/gemma2_27b.json")), 27'227'128'320);
  EXPECT_EQ(parameters_of(read("mlc_preset/gemma3_1b_it.json")), 999'885'952);
}

}  // namespace
}  // namespace tessera
