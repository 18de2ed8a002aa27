// Catches: sizes of a vision tower that are accepted although no kernel supports them or they contradict other fields;
// a field of a published config that is not read.
#include "tessera/model/config/vision_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tessera/model/config/config.h"
#include "tessera/model/family.h"
#include "tessera/model/model.h"
#include "tessera/ops/built_in_ops.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kVisionConfig =
    R"({"vocab_size": 512, "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 4,
    "num_attention_heads": 4, "head_dim": 16, "max_position_embeddings": 2048, "image_token_id": 505, "vision_start_token_id": 503,
    "vision_end_token_id": 504, "rope_scaling": {"type": "default", "mrope_section": [2, 3, 3]}})";
// The fields of Qwen2-VL-7B's published file, but with fewer blocks and with the hidden size of this test's language
// model.
constexpr const char* kPlain = R"({"depth": 4, "embed_dim": 1280, "mlp_ratio": 4, "num_heads": 16, "in_chans": 3,
    "hidden_size": 64, "patch_size": 14, "spatial_merge_size": 2, "spatial_patch_size": 14, "temporal_patch_size": 2})";
// The fields of Qwen2.5-VL-7B's published file, but with fewer blocks and with the hidden size of this test's language
// model.
constexpr const char* kWindows = R"({"depth": 4, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16,
    "out_hidden_size": 64, "patch_size": 14, "in_chans": 3, "window_size": 112, "fullatt_block_indexes": [1, 3],
    "hidden_act": "silu"})";
constexpr const char* kPositions = R"({"depth": 4, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16,
    "out_hidden_size": 64, "patch_size": 16, "in_channels": 3, "num_position_embeddings": 2304,
    "deepstack_visual_indexes": [0, 2], "hidden_act": "gelu_pytorch_tanh"})";

Json changed(const char* json, const std::string& changes) {
  Json tower = *Json::parse(json, "base");
  const Result<Json> parsed = Json::parse("{" + changes + "}", "changes");
  EXPECT_TRUE(parsed.ok()) << changes;
  for (const auto& [key, value] : parsed->as_object()) tower.set(key, value);
  return tower;
}

Result<VisionConfig> read_tower(VisionConfig::Kind kind, const std::string& changes = "") {
  VisionConfig config{.kind = kind};
  const char* base = kind == VisionConfig::Kind::kQwen2    ? kPlain
                     : kind == VisionConfig::Kind::kQwen25 ? kWindows
                                                           : kPositions;
  TRY(read_vision_config(changed(base, changes), "m/config.json", /*text_hidden_size=*/64, config));
  return config;
}

TEST(VisionConfig, ReadsAPlainTowerWithItsOwnNames) {
  const Result<VisionConfig> vision = read_tower(VisionConfig::Kind::kQwen2);
  ASSERT_TRUE(vision.ok()) << vision.status().to_string();
  EXPECT_EQ(vision->hidden_size, 1280);
  EXPECT_EQ(vision->intermediate_size, 5120);
  EXPECT_EQ(vision->out_hidden_size, 64);
  EXPECT_EQ(vision->head_dim(), 80);
  EXPECT_EQ(vision->row_values(), 64);
  EXPECT_EQ(read_tower(VisionConfig::Kind::kQwen2, R"("mlp_ratio": 2.5)")->intermediate_size, 3200);
  EXPECT_EQ(read_tower(VisionConfig::Kind::kQwen2, R"("mlp_ratio": null)")->intermediate_size, 5120);
}

TEST(VisionConfig, ReadsATowerWithWindows) {
  const Result<VisionConfig> vision = read_tower(VisionConfig::Kind::kQwen25);
  ASSERT_TRUE(vision.ok()) << vision.status().to_string();
  EXPECT_EQ(vision->head_dim(), 80);
  EXPECT_EQ(vision->patch_values(), 1176);
  EXPECT_EQ(vision->window_units(), 4);
  EXPECT_EQ(vision->row_values(), 64);
  EXPECT_THAT(vision->full_attention, ElementsAre(false, true, false, true));
}

TEST(VisionConfig, ReadsATowerWithDeepstackLevels) {
  const Result<VisionConfig> vision = read_tower(VisionConfig::Kind::kQwen3);
  ASSERT_TRUE(vision.ok()) << vision.status().to_string();
  EXPECT_EQ(vision->position_side, 48);
  EXPECT_THAT(vision->deepstack_blocks, ElementsAre(0, 2));
  EXPECT_EQ(vision->row_values(), 3 * 64);
}

TEST(VisionConfig, RefusesImpossibleSizes) {
  const auto windows = [](const std::string& changes) {
    return read_tower(VisionConfig::Kind::kQwen25, changes).status().to_string();
  };
  EXPECT_THAT(windows(R"("num_heads": 7)"), HasSubstr("vision_config.num_heads"));
  EXPECT_THAT(windows(R"("num_heads": 8)"), HasSubstr("up to 128 values"));
  EXPECT_THAT(windows(R"("out_hidden_size": 32)"), HasSubstr("hidden_size (64)"));
  EXPECT_THAT(windows(R"("in_chans": 4)"), HasSubstr("vision_config.in_chans"));
  EXPECT_THAT(windows(R"("window_size": 20)"), HasSubstr("28 pixels"));
  EXPECT_THAT(windows(R"("fullatt_block_indexes": [3, 1])"), HasSubstr("from 0 to 3"));
  EXPECT_THAT(windows(R"("fullatt_block_indexes": [4])"), HasSubstr("from 0 to 3"));
  EXPECT_THAT(windows(R"("hidden_act": "gelu")"), HasSubstr("silu"));
  EXPECT_THAT(windows(R"("depth": 0)"), HasSubstr("vision_config.depth"));
  const auto plain = [](const std::string& changes) {
    return read_tower(VisionConfig::Kind::kQwen2, changes).status().to_string();
  };
  EXPECT_THAT(plain(R"("hidden_size": 32)"),
              HasSubstr("\"vision_config.hidden_size\" is 32; accepted: the language model's hidden_size (64)"));
  EXPECT_THAT(plain(R"("num_heads": 7)"), HasSubstr("a divisor of embed_dim (1280)"));
  EXPECT_THAT(plain(R"("embed_dim": 0)"), HasSubstr("vision_config.embed_dim"));
  EXPECT_THAT(plain(R"("depth": 0)"), HasSubstr("vision_config.depth"));
  EXPECT_THAT(plain(R"("mlp_ratio": 0)"), HasSubstr("\"vision_config.mlp_ratio\" is 0; accepted: a number that makes"));
  EXPECT_THAT(plain(R"("mlp_ratio": 60)"), HasSubstr("1 to 65536 of embed_dim (1280)"));
  EXPECT_THAT(plain(R"("mlp_ratio": "4")"), HasSubstr("vision_config.mlp_ratio"));
  EXPECT_THAT(plain(R"("hidden_act": "silu")"), HasSubstr("quick_gelu"));
  const auto positions = [](const std::string& changes) {
    return read_tower(VisionConfig::Kind::kQwen3, changes).status().to_string();
  };
  EXPECT_THAT(positions(R"("num_position_embeddings": 2305)"), HasSubstr("a square number"));
  EXPECT_THAT(positions(R"("deepstack_visual_indexes": [0, 0])"), HasSubstr("from 0 to 3"));
  EXPECT_THAT(positions(R"("spatial_merge_size": 9)"), HasSubstr("spatial_merge_size"));
}

Result<ModelConfig> model(const char* architecture, const char* tower) {
  Json json = *Json::parse(kVisionConfig, "base");
  json.set("architectures", Json(Json::Array{Json(architecture)}));
  if (tower != nullptr) json.set("vision_config", *Json::parse(tower, "tower"));
  return ModelConfig::from_json(json, "m/config.json", built_in_families());
}

TEST(VisionConfig, OnlyVisionModelsHaveOne) {
  const ModelConfig windows = *model("Qwen2_5_VLForConditionalGeneration", kWindows);
  EXPECT_EQ(windows.tensor_prefix, "model.");
  EXPECT_EQ(windows.vision->tensor_prefix, "visual.");
  const ModelConfig positions = *model("Qwen3VLForConditionalGeneration", kPositions);
  EXPECT_EQ(positions.tensor_prefix, "model.language_model.");
  EXPECT_EQ(positions.vision->tensor_prefix, "model.visual.");
  EXPECT_FALSE(model("Qwen2ForCausalLM", kWindows)->vision.has_value());
  EXPECT_THAT(model("Qwen3VLForConditionalGeneration", "3").status().to_string(), HasSubstr("an object"));
}

// The tower is a separate graph. The model's list of weights contains the tower's weights too.
TEST(VisionConfig, TowersBuild) {
  for (const auto& [architecture, tower] : {std::pair{"Qwen2VLForConditionalGeneration", kPlain},
                                            {"Qwen2_5_VLForConditionalGeneration", kWindows},
                                            {"Qwen3VLForConditionalGeneration", kPositions}}) {
    const ModelConfig config = *model(architecture, tower);
    const Result<ModelGraphs> graphs = build_model(config, {}, built_in_ops(), built_in_families());
    ASSERT_TRUE(graphs.ok()) << graphs.status().to_string();
    ASSERT_TRUE(graphs->vision.has_value());
    const ir::Type& rows = graphs->vision->graph.value(graphs->vision->graph.outputs[0]).type;
    EXPECT_EQ(rows.to_string(), "f32[S/4, " + std::to_string(config.vision->row_values()) + "]");
    const auto of_tower = [&](const WeightSpec& spec) { return spec.name.starts_with(config.vision->tensor_prefix); };
    EXPECT_TRUE(std::ranges::any_of(graphs->weights, of_tower));
  }
}

// The intermediate size is 3420. In the graph it is padded with zeros to a size at which matmuls are fast. The tensors
// in the checkpoint keep their sizes.
TEST(VisionConfig, InnerValuesArePaddedWhereTheyFillNoTile) {
  const ModelConfig config = *model("Qwen2_5_VLForConditionalGeneration", kWindows);
  const ModelGraphs graphs = *build_model(config, {}, built_in_ops(), built_in_families());
  using Sizes = std::vector<std::int64_t>;
  const auto expect_padded = [&](const std::string& name, const char* type, const Sizes& shape, const Sizes& padded) {
    const auto spec = std::ranges::find(graphs.weights, "visual.blocks.0.mlp." + name, &WeightSpec::name);
    ASSERT_NE(spec, graphs.weights.end()) << name;
    EXPECT_EQ(spec->type.to_string(), type);
    for (const WeightPart& part : spec->parts) {
      EXPECT_EQ(part.shape, shape) << part.tensor;
      EXPECT_EQ(part.padded, padded) << part.tensor;
    }
  };
  expect_padded("gate_up_proj.weight", "f32[6912, 1280]", {3420, 1280}, {3456, 1280});
  expect_padded("gate_up_proj.bias", "f32[6912]", {3420}, {3456});
  expect_padded("down_proj.weight", "f32[1280, 3456]", {1280, 3420}, {1280, 3456});
  expect_padded("down_proj.bias", "f32[1280]", {1280}, {1280});
}

}  // namespace
}  // namespace tessera
