// Catches: tensors that get another type than other GGUF writers choose; a type whose block size does not divide the
// tensor's row length.
#include "tessera/model/quantise/file_types.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace tessera {
namespace {

using Type = BlockType;
using ::testing::HasSubstr;

// A dense model with 16 layers. The LM head is separate from the embeddings unless has_output is false.
GgufContent dense(std::int64_t cols, bool has_output = true) {
  GgufContent content;
  content.architecture = "llama";
  content.layers = 16;
  content.queries_per_key = 4;
  const auto add = [&](std::string name, std::vector<std::int64_t> shape) {
    content.tensors.push_back({.name = std::move(name), .shape = std::move(shape), .numbers = nullptr});
  };
  add("token_embd.weight", {1000, cols});
  if (has_output) add("output.weight", {1000, cols});
  add("output_norm.weight", {cols});
  for (int layer = 0; layer < 16; ++layer) {
    for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"})
      add(fmt::format("blk.{}.{}.weight", layer, name), {cols, cols});
    add(fmt::format("blk.{}.attn_norm.weight", layer), {cols});
  }
  return content;
}

std::map<std::string, Type> types_of(const GgufContent& content, const char* type) {
  const ChosenTypes chosen = choose_types(content, *find_file_type(type));
  std::map<std::string, Type> types;
  for (std::size_t i = 0; i < content.tensors.size(); ++i) types[content.tensors[i].name] = chosen.types[i];
  return types;
}

TEST(FileTypes, NamesAreFoundInAnyCase) {
  EXPECT_EQ(find_file_type("q4_k_m"), find_file_type("Q4_K_M"));
  EXPECT_EQ(find_file_type("Q4_K_M")->id, 15u);
  EXPECT_EQ(find_file_type("Q4_K"), nullptr);
  EXPECT_EQ(find_file_type(""), nullptr);
}

TEST(FileTypes, ProjectionOfPerLayerInputsKeepsItsType) {
  GgufContent content = dense(512);
  content.tensors.push_back(
      {.name = "per_layer_model_proj.weight", .shape = {512, 512}, .stored = Type::kBF16, .numbers = nullptr});
  for (const char* type : {"Q8_0", "Q4_K_M", "MXFP4_MOE"})
    EXPECT_EQ(types_of(content, type).at("per_layer_model_proj.weight"), Type::kBF16) << type;
  EXPECT_EQ(types_of(content, "F16").at("per_layer_model_proj.weight"), Type::kF16);
}

TEST(FileTypes, MediumMixGivesMoreBitsToSomeLayers) {
  const auto types = types_of(dense(512), "Q4_K_M");
  EXPECT_EQ(types.at("output.weight"), Type::kQ6_K);
  EXPECT_EQ(types.at("token_embd.weight"), Type::kQ4_K);
  EXPECT_EQ(types.at("output_norm.weight"), Type::kF32);
  EXPECT_EQ(types.at("blk.3.attn_norm.weight"), Type::kF32);
  // Layers 0, 1, 14 and 15 get more bits, and so does every third layer in between.
  for (int layer = 0; layer < 16; ++layer) {
    const bool more = layer < 2 || layer >= 14 || (layer - 2) % 3 == 2;
    for (const char* name : {"attn_v", "ffn_down"})
      EXPECT_EQ(types.at(fmt::format("blk.{}.{}.weight", layer, name)), more ? Type::kQ6_K : Type::kQ4_K) << layer;
    EXPECT_EQ(types.at(fmt::format("blk.{}.ffn_up.weight", layer)), Type::kQ4_K);
  }
}

TEST(FileTypes, SmallMixGivesMoreBitsToFirstLayers) {
  const auto types = types_of(dense(512), "Q4_K_S");
  for (int layer = 0; layer < 16; ++layer) {
    EXPECT_EQ(types.at(fmt::format("blk.{}.attn_v.weight", layer)), layer < 4 ? Type::kQ5_K : Type::kQ4_K) << layer;
    EXPECT_EQ(types.at(fmt::format("blk.{}.ffn_down.weight", layer)), layer < 2 ? Type::kQ5_K : Type::kQ4_K) << layer;
  }
}

TEST(FileTypes, SmallTypesKeepWhatMattersMost) {
  auto types = types_of(dense(512), "Q2_K");
  EXPECT_EQ(types.at("blk.7.attn_v.weight"), Type::kQ4_K);
  EXPECT_EQ(types.at("blk.7.attn_output.weight"), Type::kQ3_K);
  EXPECT_EQ(types.at("blk.7.ffn_down.weight"), Type::kQ3_K);
  EXPECT_EQ(types.at("blk.7.ffn_up.weight"), Type::kQ2_K);
  types = types_of(dense(512), "Q3_K_M");
  EXPECT_EQ(types.at("blk.0.ffn_down.weight"), Type::kQ5_K);
  EXPECT_EQ(types.at("blk.7.ffn_down.weight"), Type::kQ4_K);
  types = types_of(dense(512), "IQ4_XS");
  EXPECT_EQ(types.at("blk.7.attn_v.weight"), Type::kQ5_K);
}

TEST(FileTypes, EmbeddingsThatAreTheHeadGetItsType) {
  EXPECT_EQ(types_of(dense(512, false), "Q4_K_M").at("token_embd.weight"), Type::kQ6_K);
  EXPECT_EQ(types_of(dense(512, false), "Q8_0").at("token_embd.weight"), Type::kQ8_0);
  EXPECT_EQ(types_of(dense(512, false), "BF16").at("token_embd.weight"), Type::kBF16);
}

TEST(FileTypes, RowsThatDoNotFitGetAnotherType) {
  const GgufContent content = dense(96);
  const ChosenTypes chosen = choose_types(content, *find_file_type("Q4_K_M"));
  const auto types = types_of(content, "Q4_K_M");
  EXPECT_EQ(types.at("blk.3.ffn_up.weight"), Type::kQ5_0);
  EXPECT_EQ(types.at("blk.0.ffn_down.weight"), Type::kQ8_0);
  EXPECT_EQ(types.at("output.weight"), Type::kQ8_0);
  EXPECT_THAT(chosen.notes, ::testing::Contains(HasSubstr("become Q5_0 instead of Q4_K, whose blocks do not divide")));
  EXPECT_EQ(types_of(dense(40), "Q8_0").at("blk.3.ffn_up.weight"), Type::kF16);
  EXPECT_THAT(choose_types(dense(512), *find_file_type("Q4_K_M")).notes, ::testing::IsEmpty());
}

TEST(FileTypes, ExpertsCountLayersByTheirNames) {
  GgufContent content;
  content.architecture = "qwen3moe";
  content.layers = 16;
  content.experts = 64;
  // A file may list layer 10 before layer 2.
  for (const int layer : {10, 2, 0, 15})
    content.tensors.push_back(
        {.name = fmt::format("blk.{}.ffn_down_exps.weight", layer), .shape = {64, 256, 512}, .numbers = nullptr});
  content.tensors.push_back({.name = "blk.0.ffn_gate_inp.weight", .shape = {64, 512}, .numbers = nullptr});
  const auto types = types_of(content, "Q4_K_M");
  EXPECT_EQ(types.at("blk.2.ffn_down_exps.weight"), Type::kQ4_K);
  EXPECT_EQ(types.at("blk.10.ffn_down_exps.weight"), Type::kQ6_K);
  EXPECT_EQ(types.at("blk.15.ffn_down_exps.weight"), Type::kQ6_K);
  EXPECT_EQ(types.at("blk.0.ffn_gate_inp.weight"), Type::kF32);
  EXPECT_EQ(types_of(content, "MXFP4_MOE").at("blk.2.ffn_down_exps.weight"), Type::kMXFP4);
}

}  // namespace
}  // namespace tessera
