// Catches: a vision-language config that is read differently than in transformers, whether the text model's fields are
// at the top level or in text_config; image placeholders or three-dimensional positions that are missing or wrong; a
// model for text only that gets placeholders or such positions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/model/config/config_test_util.h"
#include "tessera/model/test_support.h"

namespace tessera {
namespace {

using test::expect_error;
using test::small_config;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr const char* kTokens =
    R"("image_token_id": 60, "video_token_id": 61, "vision_start_token_id": 62, "vision_end_token_id": 63)";

// Reads a config whose heads have 16 dimensions, which are 8 rotated pairs.
Result<ModelConfig> read_vision_model(const char* architecture, const std::string& members) {
  return ModelConfig::from_json(small_config(architecture, members.c_str()), "m/config.json", built_in_families());
}

// A "vision_config" that is valid for the towers of both Qwen2.5-VL and Qwen3-VL.
constexpr const char* kTower = R"({"depth": 12, "hidden_size": 64, "intermediate_size": 96, "num_heads": 4,
    "out_hidden_size": 64, "patch_size": 14, "window_size": 112, "fullatt_block_indexes": [7],
    "num_position_embeddings": 64, "deepstack_visual_indexes": [5, 11]})";

std::string with_tokens(const std::string& members) {
  return std::string("{") + kTokens + ", \"vision_config\": " + kTower + ", " + members + "}";
}

TEST(QwenVlConfig, ReadsThePublishedFlatSpelling) {
  const Result<ModelConfig> config = read_vision_model(
      "Qwen2_5_VLForConditionalGeneration",
      with_tokens(R"("rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}, "rope_theta": 1000000.0)"));
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->images,
            (ImageTokens{.image = TokenId(60), .vision_start = TokenId(62), .vision_end = TokenId(63)}));
  EXPECT_THAT(config->rope.sections, ElementsAre(2, 3, 3));
  EXPECT_FALSE(config->rope.interleaved_sections);
  EXPECT_EQ(config->rope.type, RopeType::kDefault);
  EXPECT_TRUE(config->qkv_bias);
  EXPECT_EQ(config->embedding_row_values(), config->hidden_size);
}

// A file may leave out the sizes that are the defaults of transformers.
TEST(QwenVlConfig, Qwen2VlHasTransformersSizesByDefault) {
  const Result<ModelConfig> config = read_vision_model(
      "Qwen2VLForConditionalGeneration",
      std::string("{") + kTokens +
          R"(, "vision_config": {"hidden_size": 64, "in_chans": 3, "model_type": "qwen2_vl", "spatial_patch_size": 14},
          "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}})");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->vision->depth, 32);
  EXPECT_EQ(config->vision->head_dim(), 80);
  EXPECT_EQ(config->vision->intermediate_size, 5120);
  EXPECT_EQ(config->vision->patch_values(), 1176);
  EXPECT_THAT(config->rope.sections, ElementsAre(2, 3, 3));
  EXPECT_EQ(config->images->image, TokenId(60));
  EXPECT_TRUE(config->qkv_bias);
}

TEST(QwenVlConfig, ReadsANestedOneWithTransformersDefaults) {
  Json json = small_config("Qwen3VLForConditionalGeneration", with_tokens(R"("bos_token_id": 1)").c_str());
  json.set("text_config", small_config("ignored", R"({"head_dim": 16, "eos_token_id": 151645, "rope_parameters":
      {"rope_type": "default", "mrope_section": [2, 3, 3], "mrope_interleaved": true}})"));
  const Result<ModelConfig> config = ModelConfig::from_json(json, "m/config.json", built_in_families());
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_TRUE(config->rope.interleaved_sections);
  EXPECT_THAT(config->eos_token_ids, IsEmpty()) << "of another vocabulary";
  EXPECT_EQ(config->images->deepstack_levels, 2);
  EXPECT_EQ(config->embedding_row_values(), 3 * config->hidden_size);
  EXPECT_EQ(config->qk_norm, QkNorm::kHead);
  EXPECT_EQ(config->tensor_prefix, "model.language_model.");
}

TEST(QwenVlConfig, AbsentSectionsAreThoseOfTransformers) {
  const std::string members = with_tokens(R"("head_dim": 128, "bos_token_id": 1)");
  const Result<ModelConfig> older = read_vision_model("Qwen2_5_VLForConditionalGeneration", members);
  ASSERT_TRUE(older.ok()) << older.status().message();
  EXPECT_THAT(older->rope.sections, ElementsAre(16, 24, 24));
  EXPECT_FALSE(older->rope.interleaved_sections);
  const Result<ModelConfig> newer = read_vision_model("Qwen3VLForConditionalGeneration", members);
  ASSERT_TRUE(newer.ok()) << newer.status().message();
  EXPECT_THAT(newer->rope.sections, ElementsAre(24, 20, 20));
  EXPECT_TRUE(newer->rope.interleaved_sections);
}

TEST(QwenVlConfig, RefusesMissingOrWrongImageFields) {
  const char* const name = "Qwen2_5_VLForConditionalGeneration";
  expect_error(read_vision_model(name, R"({"vision_config": {}})"), StatusCode::kInvalidArgument,
               {"image_token_id", "missing"});
  expect_error(read_vision_model(name, with_tokens(R"("bos_token_id": 1)")), StatusCode::kInvalidArgument,
               {"mrope_section", "8 rotated pairs"});
  expect_error(
      read_vision_model(name, with_tokens(R"("rope_scaling": {"type": "mrope", "mrope_section": [2.5, 2.5, 3]})")),
      StatusCode::kInvalidArgument, {"mrope_section", "2.5"});
  expect_error(
      read_vision_model("Qwen3VLForConditionalGeneration",
                        with_tokens(R"("head_dim": 16, "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]},
                                   "num_hidden_layers": 1)")),
      StatusCode::kInvalidArgument, {"deepstack_visual_indexes", "num_hidden_layers (1)"});
}

TEST(QwenVlConfig, ATextModelHasPlainPositions) {
  const Result<ModelConfig> config = read_vision_model(
      "Qwen3ForCausalLM", R"({"head_dim": 16, "rope_scaling": {"rope_type": "default", "mrope_section": [2, 3, 3]}})");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_FALSE(config->images);
  EXPECT_THAT(config->rope.sections, IsEmpty());
}

}  // namespace
}  // namespace tessera
