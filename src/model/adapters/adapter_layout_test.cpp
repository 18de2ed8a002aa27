// Catches: rows of one module that are assigned to another module; a linear that may be changed by adapters although it
// is not a target of the options; a tensor-parallel rank that has only some columns of a matrix, but takes other
// columns of LoRA's A; a padded matrix that may be changed by adapters.
#include "tessera/model/adapters/adapter_layout.h"

#include "tessera/model/layers/linear_parts.h"
#include "tessera/model/test_support.h"

namespace tessera::test {
namespace {

LinearPart part(const std::string& tensor, std::int64_t first, std::int64_t rows, std::int64_t tensor_rows) {
  return {.tensor = tensor,
          .tensor_rows = tensor_rows,
          .tensor_cols = 32,
          .slice = {.dim = 0, .begin = first, .size = rows},
          .rows = rows,
          .cols = 32};
}

std::vector<AdaptableLinear> two_linears() {
  const std::vector<LinearPart> qkv{part("model.layers.0.self_attn.q_proj", 0, 64, 64),
                                    part("model.layers.0.self_attn.k_proj", 0, 16, 16)};
  const std::vector<LinearPart> down{part("model.layers.0.mlp.down_proj", 0, 32, 32)};
  return {*adaptable_linear("qkv.weight", qkv), *adaptable_linear("down.weight", down)};
}

TEST(AdapterLayout, JoinsNeighbouringRowsOfAModule) {
  const std::vector<LinearPart> parts{part("q", 0, 8, 64), part("q", 8, 8, 64), part("q", 32, 8, 64),
                                      part("k", 0, 16, 16)};
  const std::optional<AdaptableLinear> linear = adaptable_linear("w", parts);
  ASSERT_TRUE(linear);
  ASSERT_EQ(linear->modules.size(), 2u);
  EXPECT_EQ(linear->modules[0].rows, 64);
  EXPECT_EQ(linear->modules[1].cols, 32);
  ASSERT_EQ(linear->ranges.size(), 3u);
  EXPECT_EQ(linear->ranges[0].rows, 16);
  EXPECT_EQ(linear->ranges[1].first_row, 32);
  EXPECT_EQ(linear->ranges[2].module, 1u);
  EXPECT_EQ(linear->rows(), 40);
}

TEST(AdapterLayout, KeepsTheColumnsThatARankHolds) {
  LinearPart columns = part("o", 0, 32, 32);
  columns.slice = {.dim = 1, .begin = 16, .size = 16};
  columns.cols = 16;
  const std::optional<AdaptableLinear> linear = adaptable_linear("w", {&columns, 1});
  ASSERT_TRUE(linear);
  EXPECT_EQ(linear->first_col, 16);
  EXPECT_EQ(linear->cols, 16);
  EXPECT_EQ(linear->modules[0].cols, 32);
  EXPECT_EQ(linear->ranges[0].first_row, 0);
}

TEST(AdapterLayout, LeavesOutPaddingAndManyRanges) {
  LinearPart padded = part("o", 0, 32, 32);
  padded.padded = true;
  EXPECT_FALSE(adaptable_linear("w", {&padded, 1}));
  std::vector<LinearPart> many;
  for (std::int64_t i = 0; i < 20; ++i) many.push_back(part("q", 16 * i, 8, 320));
  EXPECT_EQ(adaptable_linear("w", many)->columns().size(), 1u);
  for (std::int64_t i = 0; i < 20; ++i) many[static_cast<std::size_t>(i)].tensor = i % 2 == 0 ? "q" : "k";
  EXPECT_FALSE(adaptable_linear("w", many));
}

TEST(AdapterLayout, KeepsLinearsWithATarget) {
  const Result<AdapterLayout> layout =
      AdapterLayout::create({two_linears()}, 0, {.targets = {"k_proj"}}, ir::DType::kFloat32);
  ASSERT_TRUE(layout.ok()) << layout.status().message();
  ASSERT_EQ(layout->linears().size(), 1u);
  EXPECT_NE(layout->find("qkv.weight"), nullptr);
  EXPECT_EQ(layout->find("down.weight"), nullptr);
  EXPECT_TRUE(layout->places_of("model.layers.0.self_attn.q_proj").empty());
  EXPECT_EQ(layout->places_of("model.language_model.layers.0.self_attn.k_proj"),
            (std::vector<AdapterLayout::Place>{{.rank = 0, .linear = 0, .module = 1}}));
  EXPECT_TRUE(layout->places_of("model.layers.10.self_attn.k_proj").empty());
  EXPECT_EQ(layout->target_names(), "k_proj");
}

TEST(AdapterLayout, TakesEmbeddingAndHeadOnlyByName) {
  std::vector<AdaptableLinear> linears = two_linears();
  linears.push_back({.weight = "embed.weight",
                     .embeds = true,
                     .cols = 100,
                     .modules = {{"model.language_model.embed_tokens", 32, 100}},
                     .ranges = {{0, 0, 32}}});
  linears.push_back({.weight = "embed.weight", .cols = 32, .modules = {{"lm_head", 100, 32}}, .ranges = {{0, 0, 100}}});
  const auto names = [&](std::vector<std::string> targets) {
    return AdapterLayout::create({linears}, 0, {.targets = std::move(targets)}, ir::DType::kFloat32)->target_names();
  };
  EXPECT_EQ(names({}), "down_proj, k_proj, q_proj");
  EXPECT_EQ(names({"all-linear"}), "down_proj, k_proj, q_proj");
  EXPECT_EQ(names({"lm_head"}), "lm_head");
  EXPECT_EQ(names({"all-linear", "embed_tokens"}), "down_proj, embed_tokens, k_proj, q_proj");
  const AdapterLayout layout =
      *AdapterLayout::create({linears}, 0, {.targets = {"lm_head", "embed_tokens"}}, ir::DType::kFloat32);
  EXPECT_EQ(layout.places_of("model.embed_tokens").size(), 1u);
  EXPECT_EQ(layout.places_of("language_model.lm_head").size(), 1u);
  EXPECT_TRUE(layout.find("embed.weight", /*embeds=*/true)->embeds);
  EXPECT_EQ(layout.find("embed.weight")->modules[0].name, "lm_head");
}

TEST(AdapterLayout, KnowsTheModulesOfEveryRank) {
  // The model is split by layers, so that rank 0 has none of these linears.
  const Result<AdapterLayout> layout =
      AdapterLayout::create({{}, two_linears()}, 0, {.targets = {"down_proj"}}, ir::DType::kFloat32);
  ASSERT_TRUE(layout.ok()) << layout.status().message();
  EXPECT_TRUE(layout->linears().empty());
  EXPECT_EQ(layout->find("down.weight"), nullptr);
  ASSERT_EQ(layout->places_of("model.layers.0.mlp.down_proj"),
            (std::vector<AdapterLayout::Place>{{.rank = 1, .linear = 0, .module = 0}}));
  EXPECT_EQ(layout->module_at({.rank = 1, .linear = 0, .module = 0}).name, "model.layers.0.mlp.down_proj");
  EXPECT_EQ(layout->target_names(), "down_proj");
}

TEST(AdapterLayout, ListsALinearTwiceIfItMayBeReplaced) {
  const AdaptableLinear head{
      .weight = "embed.weight", .cols = 6, .modules = {{"lm_head", 4, 6}}, .ranges = {{0, 0, 2}}};
  const AdapterLayout both =
      *AdapterLayout::create({{head}}, 0, {.targets = {"lm_head"}, .saved = {"lm_head"}}, ir::DType::kFloat32);
  ASSERT_EQ(both.linears().size(), 2u);
  EXPECT_FALSE(both.find("embed.weight")->whole);
  EXPECT_EQ(both.rows_of_a(*both.find("embed.weight")), 16);
  EXPECT_EQ(both.rows_of_a(*both.find("embed.weight", false, /*whole=*/true)), 2);
  const AdapterLayout one = *AdapterLayout::create({{head}}, 0, {.saved = {"lm_head"}}, ir::DType::kFloat32);
  EXPECT_EQ(one.find("embed.weight"), nullptr);
  EXPECT_TRUE(one.places_of("lm_head").empty());
  EXPECT_EQ(one.places_of("model.lm_head", /*whole=*/true).size(), 1u);
  EXPECT_EQ(one.most_share_bytes(0), 2 * 6 * 4);
  EXPECT_EQ(both.most_share_bytes(0), 2 * 6 * 4 + 16 * (6 + 2) * 4);
}

TEST(AdapterLayout, RefusesLimitsAndUnknownTargets) {
  const auto create = [](AdapterLimits limits) {
    return AdapterLayout::create({two_linears()}, 0, std::move(limits), ir::DType::kFloat32);
  };
  expect_error(create({.slots = 0}), StatusCode::kInvalidArgument, {"max_loras_per_batch", "0"});
  expect_error(create({.max_rank = 513}), StatusCode::kInvalidArgument, {"max_lora_rank", "513", "512"});
  expect_error(create({.targets = {"lm_head"}}), StatusCode::kInvalidArgument,
               {"lora_target_modules", "lm_head", "down_proj, k_proj, q_proj"});
  expect_error(create({.saved = {"q_proj"}}), StatusCode::kInvalidArgument,
               {"lora_modules_to_save", "q_proj", "accepted: none"});
  expect_error(AdapterLayout::create(AdapterLayout::OfRanks(1), 0, {}, ir::DType::kFloat32), StatusCode::kUnimplemented,
               {"enable_lora"});
}

}  // namespace
}  // namespace tessera::test
