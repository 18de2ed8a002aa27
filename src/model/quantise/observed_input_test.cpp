// Tests how the entries of an importance matrix are made. An entry holds, for each column of a tensor, the sum of the
// squared inputs. Catches: sums that are stored under the name of another tensor; columns that are not in the order of
// GGUF files; entries that contain sums of padding columns.
#include "tessera/model/quantise/observed_input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ModelConfig config_of(const char* architecture) {
  ModelConfig config;
  config.architecture = architecture;
  return config;
}

WeightSpec weight_of(const std::string& name, const std::vector<std::string>& tensors, std::int64_t cols) {
  WeightSpec weight{.name = name};
  for (const std::string& tensor : tensors) weight.parts.push_back({.tensor = tensor, .shape = {4, cols}});
  return weight;
}

std::vector<std::string> names_of(const std::vector<ImportanceEntry>& entries) {
  std::vector<std::string> names;
  for (const ImportanceEntry& entry : entries) names.push_back(entry.name);
  return names;
}

TEST(ObservedInput, TensorsOfAWeightShareItsSums) {
  const std::string p = "model.layers.3.self_attn.";
  const std::vector<WeightSpec> weights{
      weight_of("qkv", {p + "q_proj.weight", p + "k_proj.weight", p + "v_proj.weight"}, 2),
      weight_of("head", {"model.embed_tokens.weight"}, 2)};
  const std::vector<ObservedInput> inputs{{.weight = "qkv", .sums = {1, 2}, .counts = {5}},
                                          {.weight = "head", .sums = {3, 4}, .counts = {6}}};
  const auto entries = importance_of_inputs(config_of("Qwen3ForCausalLM"), "m", weights, inputs);
  ASSERT_TRUE(entries.ok()) << entries.status().message();
  EXPECT_THAT(names_of(*entries),
              ElementsAre("blk.3.attn_q.weight", "blk.3.attn_k.weight", "blk.3.attn_v.weight", "token_embd.weight"));
  EXPECT_THAT((*entries)[1].sums, ElementsAre(1, 2));
  EXPECT_THAT((*entries)[1].counts, ElementsAre(5));
}

TEST(ObservedInput, QuantisedTensorsAndExpertsHaveFileNames) {
  std::vector<WeightSpec> weights{weight_of("down", {"model.layers.0.mlp.down_proj.weight_packed"}, 2),
                                  weight_of("gate_up", {"model.layers.1.mlp.experts.0.gate_proj.weight"}, 2),
                                  weight_of("experts_down", {"model.layers.1.mlp.experts.0.down_proj.weight"}, 1)};
  weights[0].parts[0].storage = PackedStorage{};
  const std::vector<ObservedInput> inputs{
      {.weight = "down", .sums = {1, 2, 3, 4}, .counts = {5}},
      {.weight = "gate_up", .kind = ObservedWeight::kExpertsGateUp, .sums = {1, 2, 3, 4}, .counts = {5, 6}},
      {.weight = "experts_down", .kind = ObservedWeight::kExpertsDown, .sums = {7, 8}, .counts = {5, 6}}};
  const auto entries = importance_of_inputs(config_of("Qwen3MoeForCausalLM"), "m", weights, inputs);
  ASSERT_TRUE(entries.ok()) << entries.status().message();
  EXPECT_THAT(names_of(*entries), ElementsAre("blk.0.ffn_down.weight", "blk.1.ffn_gate_exps.weight",
                                              "blk.1.ffn_up_exps.weight", "blk.1.ffn_down_exps.weight"));
  EXPECT_THAT((*entries)[2].counts, ElementsAre(5, 6));
}

TEST(ObservedInput, JoinedExpertsHaveOneEntry) {
  ModelConfig config = config_of("Gemma4ForConditionalGeneration");
  config.tensor_prefix = "model.language_model.";
  const std::string p = config.tensor_prefix + "layers.1.";
  const std::vector<WeightSpec> weights{weight_of("gate_up", {p + "experts.gate_up_proj"}, 2),
                                        weight_of("down", {p + "experts.down_proj"}, 1),
                                        weight_of("gate", {p + "per_layer_input_gate.weight"}, 1)};
  const std::vector<ObservedInput> inputs{
      {.weight = "gate_up", .kind = ObservedWeight::kExpertsGateUp, .sums = {1, 2, 3, 4}, .counts = {5, 6}},
      {.weight = "down", .kind = ObservedWeight::kExpertsDown, .sums = {7, 8}, .counts = {5, 6}},
      {.weight = "gate", .sums = {9}, .counts = {11}}};
  const auto entries = importance_of_inputs(config, "m", weights, inputs);
  ASSERT_TRUE(entries.ok()) << entries.status().message();
  EXPECT_THAT(names_of(*entries),
              ElementsAre("blk.1.ffn_gate_up_exps.weight", "blk.1.ffn_down_exps.weight", "blk.1.inp_gate.weight"));
}

TEST(ObservedInput, ColumnsOfPaddingAreLeftOut) {
  const std::vector<WeightSpec> weights{weight_of("q", {"model.layers.0.self_attn.q_proj.weight"}, 3)};
  const std::vector<ObservedInput> inputs{{.weight = "q", .sums = {1, 2, 3, 0}, .counts = {5}}};
  const auto entries = importance_of_inputs(config_of("LlamaForCausalLM"), "m", weights, inputs);
  ASSERT_TRUE(entries.ok()) << entries.status().message();
  EXPECT_THAT(entries->at(0).sums, ElementsAre(1, 2, 3));
}

// There are two key heads with two value heads each. A value head has two columns. GGUF files store the value
// heads in the order 0, 2, 1, 3.
TEST(ObservedInput, ValueHeadsHaveTheFilesOrder) {
  ModelConfig config = config_of("Qwen3_5ForCausalLM");
  config.delta_net = DeltaNetConfig{};
  config.delta_net->key_heads = 2;
  config.delta_net->value_heads = 4;
  config.delta_net->value_head_dim = 2;
  const std::vector<WeightSpec> weights{weight_of("out", {"model.layers.0.linear_attn.out_proj.weight"}, 8)};
  const std::vector<ObservedInput> inputs{{.weight = "out", .sums = {0, 1, 2, 3, 4, 5, 6, 7}, .counts = {1}}};
  const auto entries = importance_of_inputs(config, "m", weights, inputs);
  ASSERT_TRUE(entries.ok()) << entries.status().message();
  EXPECT_EQ(entries->at(0).name, "blk.0.ssm_out.weight");
  EXPECT_THAT(entries->at(0).sums, ElementsAre(0, 1, 4, 5, 2, 3, 6, 7));
}

TEST(ObservedInput, FaultsAreNamed) {
  const std::vector<WeightSpec> weights{weight_of("q", {"model.layers.0.self_attn.q_proj.weight"}, 1),
                                        weight_of("x", {"model.layers.0.self_attn.x_proj.weight"}, 1)};
  const auto error = [&](const char* architecture, const char* weight, double sum) {
    const std::vector<ObservedInput> inputs{{.weight = weight, .sums = {sum}, .counts = {1}}};
    return importance_of_inputs(config_of(architecture), "m", weights, inputs).status().message();
  };
  EXPECT_THAT(error("LlamaForCausalLM", "q", std::numeric_limits<double>::quiet_NaN()),
              HasSubstr("the input of blk.0.attn_q.weight has numbers that are not finite"));
  EXPECT_THAT(error("LlamaForCausalLM", "q", 1e200), HasSubstr("no finite sum"));
  EXPECT_THAT(error("LlamaForCausalLM", "x", 1), HasSubstr("x_proj.weight has no place in a GGUF file"));
  EXPECT_THAT(error("Olmo2ForCausalLM", "q", 1), HasSubstr("architecture Olmo2ForCausalLM"));
}

}  // namespace
}  // namespace tessera
