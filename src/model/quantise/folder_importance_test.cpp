// Catches: a linear that gets the importances of another matrix or expert, or its own importances in another order of
// columns; an unused entry of the importance matrix, or a linear without an entry, that the notes do not report.
#include "tessera/model/quantise/folder_importance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ModelConfig family_config(const char* architecture) {
  ModelConfig config;
  config.architecture = architecture;
  return config;
}

QuantisedLinear linear_named(const std::string& module, std::int64_t cols) {
  return {.module = module, .rows = 2, .cols = cols, .rounding = {Rounding::Values::kInt4, 1, 32}};
}

ImportanceMatrix matrix_with(std::vector<ImportanceEntry> entries) {
  return {.source = "i.gguf", .datasets = {}, .entries = std::move(entries)};
}

Result<FolderImportance> chosen(const ModelConfig& config, const std::vector<QuantisedLinear>& linears,
                                const ImportanceMatrix& matrix) {
  std::vector<std::string> names{"model.embed_tokens.weight"};
  for (const QuantisedLinear& linear : linears) names.push_back(linear.module + ".weight");
  const std::vector<std::string_view> tensors(names.begin(), names.end());
  return choose_folder_importance(config, "m", tensors, *find_folder_type("int4"), linears, matrix);
}

TEST(FolderImportance, LinearsHaveTheSumsOfTheirTensor) {
  const std::vector<QuantisedLinear> linears{linear_named("model.layers.0.self_attn.q_proj", 2),
                                             linear_named("model.layers.1.mlp.down_proj", 4)};
  const ImportanceMatrix matrix = matrix_with({{.name = "blk.0.attn_q.weight", .sums = {1, 3}, .counts = {5}},
                                               {.name = "blk.1.ffn_down.weight", .sums = {2, 2, 4, 0}, .counts = {5}}});
  const auto importance = chosen(family_config("LlamaForCausalLM"), linears, matrix);
  ASSERT_TRUE(importance.ok()) << importance.status().message();
  EXPECT_THAT(importance->linears[0], ElementsAre(0.5F, 1.5F));
  EXPECT_THAT(importance->linears[1], ElementsAre(1.0F, 1.0F, 2.0F, 1e-3F));
  EXPECT_THAT(importance->notes, IsEmpty());
}

TEST(FolderImportance, ExpertsHaveTheirOwnSums) {
  ModelConfig config = family_config("Qwen3MoeForCausalLM");
  config.moe = MoeConfig{};
  config.moe->num_experts = 2;
  const std::vector<QuantisedLinear> linears{linear_named("model.layers.0.mlp.experts.1.up_proj", 2),
                                             linear_named("model.layers.0.mlp.experts.0.up_proj", 2)};
  const auto both = [&](std::vector<float> counts) {
    return chosen(
        config, linears,
        matrix_with({{.name = "blk.0.ffn_up_exps.weight", .sums = {1, 3, 8, 0}, .counts = std::move(counts)}}));
  };
  const auto importance = both({4, 2});
  ASSERT_TRUE(importance.ok()) << importance.status().message();
  EXPECT_THAT(importance->linears[0], ElementsAre(2.0F, 1e-3F));
  EXPECT_THAT(importance->linears[1], ElementsAre(0.5F, 1.5F));
  const auto unseen = both({4, 0});
  ASSERT_TRUE(unseen.ok()) << unseen.status().message();
  EXPECT_THAT(unseen->linears[0], IsEmpty());
  EXPECT_THAT(unseen->notes, ElementsAre(HasSubstr("1 matrices are rounded without importances")));
}

// There are two key heads with two value heads each. A value head has two columns. GGUF files store the value
// heads in the order 0, 2, 1, 3.
TEST(FolderImportance, ValueHeadsHaveTheFoldersOrder) {
  ModelConfig config = family_config("Qwen3_5ForCausalLM");
  config.delta_net = DeltaNetConfig{};
  config.delta_net->key_heads = 2;
  config.delta_net->value_heads = 4;
  config.delta_net->value_head_dim = 2;
  const auto importance =
      chosen(config, {linear_named("model.layers.0.linear_attn.out_proj", 8)},
             matrix_with({{.name = "blk.0.ssm_out.weight", .sums = {1, 2, 5, 6, 3, 4, 7, 8}, .counts = {1}}}));
  ASSERT_TRUE(importance.ok()) << importance.status().message();
  for (std::size_t i = 0; i < 8; ++i) EXPECT_FLOAT_EQ(importance->linears[0][i], static_cast<float>(i + 1) / 4.5F) << i;
}

TEST(FolderImportance, NotesNameWhatIsNotUsed) {
  const auto importance = chosen(family_config("LlamaForCausalLM"),
                                 {linear_named("model.layers.0.self_attn.q_proj", 2), linear_named("lm_head", 2)},
                                 matrix_with({{.name = "blk.0.attn_q.weight", .sums = {1, 3}, .counts = {5}},
                                              {.name = "token_embd.weight", .sums = {1, 1}, .counts = {5}}}));
  ASSERT_TRUE(importance.ok()) << importance.status().message();
  EXPECT_THAT(importance->notes,
              ElementsAre(HasSubstr("1 of 2 entries of i.gguf are not used"),
                          HasSubstr("1 of the tensors outside of the layers have no entry in i.gguf and are rounded "
                                    "without one; the first is lm_head")));
  EXPECT_THAT(importance->linears[1], IsEmpty());
}

TEST(FolderImportance, WrongMatricesAreRefusedByName) {
  const auto error = [](const char* architecture, const char* entry, std::vector<float> sums) {
    const auto importance = chosen(family_config(architecture), {linear_named("model.layers.0.self_attn.q_proj", 2)},
                                   matrix_with({{.name = entry, .sums = std::move(sums), .counts = {1}}}));
    return importance.status().message();
  };
  EXPECT_THAT(error("LlamaForCausalLM", "blk.1.attn_q.weight", {1, 2}),
              HasSubstr("i.gguf: entry \"blk.1.attn_q.weight\" is no tensor of m; accepted: the importance matrix of"));
  EXPECT_THAT(error("LlamaForCausalLM", "token_embd.weight", {1, 2}),
              HasSubstr("there is no entry for tensor model.layers.0.self_attn.q_proj, which becomes int4"));
  EXPECT_THAT(error("LlamaForCausalLM", "blk.0.attn_q.weight", {1, 2, 3}),
              HasSubstr("has 3 sums and 1 counts; accepted for this tensor: 2 sums, 1 counts"));
  EXPECT_THAT(error("Olmo2ForCausalLM", "blk.0.attn_q.weight", {1, 2}), HasSubstr("architecture Olmo2ForCausalLM"));
}

}  // namespace
}  // namespace tessera
