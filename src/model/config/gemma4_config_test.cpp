// Catches: configs of Gemma 4 that are read differently than in transformers; sizes of layers with full attention that
// are confused with those of other layers; fields that contradict each other but are accepted.
#include "tessera/ir/text.h"
#include "tessera/model/config/config_test_util.h"
#include "tessera/model/model.h"
#include "tessera/model/test_support.h"
#include "tessera/ops/built_in_ops.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::parameters_of;
using test::small;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kWrong = StatusCode::kInvalidArgument;
constexpr auto kUnknown = StatusCode::kUnimplemented;
const char* const kGemma4 = "Gemma4ForCausalLM";

TEST(Gemma4Config, TakesDefaults) {
  const Result<ModelConfig> read = small(kGemma4, R"({"num_hidden_layers": 7})");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->head_dim, 256);
  EXPECT_EQ(read->num_key_value_heads, 4);
  EXPECT_FALSE(read->unit_offset_norms || read->moe);
  EXPECT_TRUE(read->round_norms_once);
  EXPECT_EQ(read->attention_scale, 1);
  EXPECT_EQ(read->embedding_scale, 8);
  EXPECT_EQ(read->logit_softcap, 0);
  EXPECT_EQ(read->rope, (RopeConfig{.type = RopeType::kProportional, .theta = 1e6, .partial_rotary_factor = 0.25}));
  EXPECT_EQ(read->sliding_rope, RopeConfig{.theta = 1e4});
  EXPECT_THAT(read->sliding_windows, ElementsAre(512, 512, 512, 512, 512, 0, 0)) << "the last layer sees all";
  EXPECT_EQ(read->gemma4->global_head_dim, 512);
  EXPECT_EQ(read->gemma4->global_key_value_heads, 4);
  EXPECT_EQ(read->gemma4->per_layer_input_size, 256);
  EXPECT_EQ(read->gemma4->per_layer_vocab_size, 262144);
  EXPECT_EQ(read->gemma4->num_shared_layers, 0);
  EXPECT_FALSE(read->gemma4->keys_are_values || read->gemma4->double_wide_mlp);
}

TEST(Gemma4Config, ReadsEachField) {
  const auto gemma4 = [](const char* changes) { return *small(kGemma4, changes); };
  EXPECT_EQ(gemma4(R"({"global_head_dim": null})").gemma4->global_head_dim, 256) << "head_dim";
  EXPECT_EQ(gemma4(R"({"global_head_dim": 64})").gemma4->global_head_dim, 64);
  EXPECT_EQ(gemma4(R"({"num_global_key_value_heads": 2})").gemma4->global_key_value_heads, 4)
      << "read with attention_k_eq_v alone";
  const ModelConfig shared = gemma4(R"({"num_global_key_value_heads": 2, "attention_k_eq_v": true})");
  EXPECT_EQ(shared.gemma4->global_key_value_heads, 2);
  EXPECT_TRUE(shared.gemma4->keys_are_values);
  EXPECT_EQ(gemma4(R"({"hidden_size_per_layer_input": null})").gemma4->per_layer_input_size, 0);
  EXPECT_EQ(gemma4(R"({"hidden_size_per_layer_input": 16})").gemma4->per_layer_input_size, 16);
  EXPECT_EQ(gemma4(R"({"vocab_size_per_layer_input": 600})").gemma4->per_layer_vocab_size, 600);
  EXPECT_EQ(gemma4(R"({"final_logit_softcapping": 30})").logit_softcap, 30);
  const ModelConfig sharing = gemma4(R"({"num_kv_shared_layers": 2, "use_double_wide_mlp": true, "layer_types":
      ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]})");
  EXPECT_EQ(sharing.gemma4->num_shared_layers, 2);
  EXPECT_TRUE(sharing.gemma4->double_wide_mlp);
  const ModelConfig mixture = gemma4(R"({"enable_moe_block": true, "num_experts": 8, "top_k_experts": 2,
      "moe_intermediate_size": 32, "use_bidirectional_attention": "vision"})");
  ASSERT_TRUE(mixture.moe);
  EXPECT_THAT(mixture.moe->layers, Each(true));
  EXPECT_EQ(mixture.moe->num_experts, 8);
  EXPECT_EQ(mixture.moe->experts_per_token, 2);
  EXPECT_EQ(mixture.moe->intermediate_size, 32);
  EXPECT_TRUE(mixture.moe->normalise);
}

TEST(Gemma4Config, EmbedsPlaceholdersAsPadding) {
  EXPECT_TRUE(small(kGemma4, R"({"image_token_id": 7})")->gemma4->placeholders.empty()) << "text alone";
  const auto nested = [](const char* changes) { return small("Gemma4ForConditionalGeneration", changes); };
  EXPECT_THAT(nested("{}")->gemma4->placeholders, ElementsAre()) << "the defaults lie outside this vocabulary";
  EXPECT_THAT(nested(R"({"vocab_size": 262144, "audio_token_id": null})")->gemma4->placeholders,
              ElementsAre(258880, 258884));
  const ModelConfig config =
      *nested(R"({"image_token_id": 7, "video_token_id": 9, "audio_token_id": 512, "pad_token_id": 3})");
  EXPECT_THAT(config.gemma4->placeholders, ElementsAre(7, 9));
  const ModelGraphs graphs = *build_model(config, {}, built_in_ops(), built_in_families());
  EXPECT_THAT(ir::to_text(graphs.body), HasSubstr("by = 3"));
  expect_error(nested(R"({"image_token_id": -1})"), kWrong, {"\"image_token_id\" is -1"});
}

TEST(Gemma4Config, RefusesWithFileFieldValueAndWhatIsAccepted) {
  struct Case {
    const char* changes;
    StatusCode code;
    std::vector<std::string> parts;
  };
  const Case cases[] = {
      {R"({"sliding_window": 0})", kWrong, {"\"sliding_window\" is 0"}},
      {R"({"global_head_dim": 7})", kWrong, {"\"global_head_dim\" is 7", "even"}},
      {R"({"attention_k_eq_v": true, "num_global_key_value_heads": 3})",
       kWrong,
       {"\"num_global_key_value_heads\" is 3", "divisor", "(4)"}},
      {R"({"use_bidirectional_attention": "all"})", kUnknown, {"use_bidirectional_attention", "\"all\""}},
      {R"({"layer_types": ["full_attention", "full_attention", "full_attention", "sliding_attention"]})",
       kUnknown,
       {"layer_types", "last entry"}},
      {R"({"num_kv_shared_layers": 4})", kWrong, {"\"num_kv_shared_layers\" is 4", "[0, 3]"}},
      {R"({"num_kv_shared_layers": 1})", kWrong, {"\"num_kv_shared_layers\" is 1", "full_attention layer"}},
      {R"({"hidden_size_per_layer_input": -1})", kWrong, {"\"hidden_size_per_layer_input\" is -1"}},
      {R"({"vocab_size_per_layer_input": 511})", kWrong, {"vocab_size_per_layer_input", "vocab_size (512)"}},
      {R"({"enable_moe_block": true, "num_experts": null})", kWrong, {"num_experts", "null"}},
      {R"({"enable_moe_block": true, "num_experts": 4, "top_k_experts": 5, "moe_intermediate_size": 8})",
       kWrong,
       {"\"top_k_experts\" is 5", "[1, 4]"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.changes);
    std::vector<std::string> parts = c.parts;
    parts.insert(parts.end(), {"m/config.json", "accepted: "});
    expect_error(small(kGemma4, c.changes), c.code, parts);
  }
}

TEST(Gemma4Config, PublishedModelsHaveTheirKnownSizes) {
  const fs::path configs = test::shared_dir() / "data" / "configs" / "aiconfigurator";
  TESSERA_SKIP_WITHOUT(configs);
  const ModelConfig gemma4 =
      *ModelConfig::read((configs / "google--gemma-4-26B-A4B_config.json").string(), built_in_families());
  EXPECT_EQ(gemma4.tensor_prefix, "model.language_model.");
  EXPECT_EQ(gemma4.gemma4->global_head_dim, 512);
  // The expected number is the sum over the shapes of the tensors of Gemma 4 26B.
  EXPECT_EQ(parameters_of(gemma4), 25'233'141'790);
}

}  // namespace
}  // namespace tessera
