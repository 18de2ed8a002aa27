// Tests bodies in text form. A body is the graph that computes a model's hidden states. Catches: a body that is
// accepted although the engine cannot fill its inputs, keep its states or load its weights; weights that are made from
// other tensors than specified; an error message that does not give the line and the name of the faulty item.
#include "tessera/model/text_body.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "tessera/ops/built_in_ops.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kText = R"(graph @mine {
  group "full" paged layers [0, 1]
  input %input_ids: i32[T]
  input %input_rows: i32[T]
  input %last_ids: i32[256]
  input %embedding_rows: i32[T]
  input %embeddings: f32[2048, 8]
  input %slots.full: i32[T]
  input %positions: i32[T]
  weight %table: f32[32, 8]
  weight %norm: f32[8]
  weight %two: f32[16, 8]
  weight %freq: f32[2]
  state %k_cache.0: f32[P, 16, 1, 4]
  %ids = resolve_ids(%input_ids, %input_rows, %last_ids)
  %h = embedding(%ids, %table, %embedding_rows, %embeddings)
  %both = linear(%h, %two) {bias = false}
  %half = silu_mul(%both)
  %sum = add(%half, %h)
  %y = rms_norm(%sum, %norm) {eps = 1e-06}
  return %y
})";

ModelConfig config_of() {
  ModelConfig config;
  config.hidden_size = 8;
  config.num_hidden_layers = 2;
  return config;
}

std::vector<WeightSpec> specs_of() {
  std::vector<WeightSpec> specs(2);
  specs[0].name = "two";
  specs[0].parts = {{.tensor = "up", .shape = {8, 8}}, {.tensor = "down", .shape = {8, 8}}};
  specs[1].name = "freq";
  specs[1].constant = {1, 2};
  return specs;
}

Result<FamilyBody> read_body(const std::string& text, std::vector<WeightSpec> specs = specs_of()) {
  return read_text_body(text, std::move(specs), config_of(), {}, built_in_ops());
}

std::string with(const std::string& from, const std::string& to) {
  std::string text = kText;
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(TextBody, GraphAndWeightsAreAsWritten) {
  const Result<FamilyBody> body = read_body(kText);
  ASSERT_TRUE(body.ok()) << body.status().to_string();
  EXPECT_EQ(body->graph.name, "body");
  EXPECT_EQ(body->graph.value(body->graph.outputs[0]).name, "hidden");
  ASSERT_EQ(body->weights.size(), 4u);
  EXPECT_EQ(body->weights[0].parts[0].tensor, "table");  // has no spec, so it is the tensor of the same name
  EXPECT_EQ(body->weights[0].dummy_init, WeightSpec::Init::kUniform);
  EXPECT_EQ(body->weights[1].dummy_init, WeightSpec::Init::kOnes);
  EXPECT_EQ(body->weights[2].parts[1].tensor, "down");
  EXPECT_EQ(body->weights[2].type.to_string(), "f32[16, 8]");
  EXPECT_EQ(body->weights[3].constant.size(), 2u);
}

struct Wrong {
  std::string from, to, words;
};
class WrongText : public ::testing::TestWithParam<Wrong> {};

TEST_P(WrongText, IsRefusedByLineAndName) {
  const Result<FamilyBody> body = read_body(with(GetParam().from, GetParam().to));
  ASSERT_FALSE(body.ok());
  EXPECT_EQ(body.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(body.status().message(), HasSubstr(GetParam().words));
}

INSTANTIATE_TEST_SUITE_P(
    Texts, WrongText,
    ::testing::Values(
        Wrong{"silu_mul(%both)", "sillu_mul(%both)", "line 18"},
        Wrong{"silu_mul(%both)", "silu_mul(%nothing)", "line 18"}, Wrong{"{bias = false}", "{bias = 3}", "line 17"},
        Wrong{"graph @mine {", "graf", "line 1"},
        Wrong{"input %positions: i32[T]", "input %places: i32[T]",
              "line 9: input %places is nothing that the engine stages; accepted: embedding_rows, embeddings, "},
        Wrong{"%last_ids: i32[256]", "%last_ids: i32[255]",
              "line 5: input %last_ids has type i32[255]; it is i32[256]"},
        Wrong{"%slots.full", "%slots.half", "line 8: input %slots.half is nothing"},
        Wrong{"resolve_ids(%input_ids, %input_rows, %last_ids)", "resolve_ids(%input_ids, %positions, %last_ids)",
              "no node reads the input %input_rows: i32[T]"},
        Wrong{"f32[P, 16, 1, 4]", "f32[P1, 16, 1, 4]",
              "%k_cache.0 is f32[P1, 16, 1, 4], of cache group 1; the graph has 1"},
        Wrong{"f32[P, 16, 1, 4]", "f32[P, 8, 1, 4]",
              "line 14: state %k_cache.0 has type f32[P, 8, 1, 4]; its second dimension must be the tokens of a page, "
              "16"},
        Wrong{"f32[P, 16, 1, 4]", "f32[P, 16, T, 4]",
              "line 14: state %k_cache.0 has type f32[P, 16, T, 4]; its dimensions behind the pages must be numbers"},
        Wrong{"f32[P, 16, 1, 4]", "f32[P, 16, 1, P]", "%k_cache.0 is f32[P, 16, 1, P]"},
        Wrong{"f32[P, 16, 1, 4]", "f32[P, 16, 0, 4]", "state %k_cache.0"},
        Wrong{"layers [0, 1]", "layers [0, 2]", "group \"full\" has layer 2; the config has layers 0 to 1"},
        Wrong{"  group \"full\" paged layers [0, 1]\n", "", "it declares 0 cache groups"},
        Wrong{"weight %freq: f32[2]", "weight %freq: f32[T]", "line 13: weight %freq has type f32[T]"},
        Wrong{"weight %freq: f32[2]", "weight %freq: i64[2]", "line 13: weight %freq has type i64[2]"},
        Wrong{"weight %freq: f32[2]", "weight %freq: u8[2]",
              "line 13: weight %freq has type u8[2]; accepted are numbers as sizes, and f32, f16 or bf16"},
        Wrong{"return %y", "return %both", "line 17: result %both is returned and has type f32[T, 16]"},
        Wrong{"return %y", "return", "it returns 0 values"},
        Wrong{"weight %freq: f32[2]", "weight %freq: f32[3]",
              "weight %freq: its constants have 2 elements; its type f32[3] has 3"},
        Wrong{"weight %freq: f32[2]", "weight %other: f32[2]",
              "a spec is for weight %freq, which the graph does not declare"},
        Wrong{"weight %freq: f32[2]", "weight %freq: f32[2]\n  weight %huge: f32[2305843009213693952, 4]", "huge"}),
    [](const auto& wrong) { return "Case" + std::to_string(wrong.index); });

// If the body declares a weight that the LM head also uses, the body and the LM head read the same memory. Both must
// therefore declare the same type.
TEST(TextBody, WeightsThatTheHeadSharesHaveItsType) {
  const auto build = [](const std::string& shared, const ModelOptions& asked = {}) {
    FamilyRegistry families;
    EXPECT_TRUE(families
                    .add({.architecture = "Mine",
                          .make_body =
                              [&](const auto& config, const auto& options, const auto& ops) {
                                return read_text_body(
                                    with("%norm: f32[8]\n", "%norm: f32[8]\n  weight " + shared + "\n"), specs_of(),
                                    config, options, ops);
                              }})
                    .ok());
    ModelConfig config = config_of();
    config.architecture = "Mine";
    config.vocab_size = 32;
    config.num_attention_heads = 1;
    return build_model(config, asked, built_in_ops(), families);
  };
  const Result<ModelGraphs> right = build("%lm_head.weight: f32[32, 8]");
  ASSERT_TRUE(right.ok()) << right.status().to_string();
  EXPECT_EQ(right->weights.size(), 5u) << "one memory";
  for (const char* type : {"f32[31, 8]", "f32[1]", "bf16[32, 8]"}) {
    EXPECT_THAT(build(std::string("%lm_head.weight: ") + type).status().to_string(),
                AllOf(HasSubstr("the weight lm_head.weight is f32[32, 8]"), HasSubstr(type)));
  }
  EXPECT_THAT(build("%lm_head.weight: f32[32, 8]", {.kv_cache_dtype = ir::DType::kUInt8}).status().to_string(),
              HasSubstr("kv_cache_dtype: int8 for Mine, whose body is written as text, is not supported"));
}

TEST(TextBody, WeightsOfAnotherSizeAreNamed) {
  std::vector<WeightSpec> specs = specs_of();
  specs[0].parts[1].shape = {7, 8};
  EXPECT_THAT(read_body(kText, specs).status().message(),
              HasSubstr("weight %two: its parts have 120 elements; its type f32[16, 8] has 128"));
  specs = specs_of();
  specs[0].parts[1].slice = {.dim = 0, .begin = 4, .size = 8};
  EXPECT_THAT(read_body(kText, specs).status().message(), HasSubstr("weight %two: tensor down: slice of 8 from 4"));
}

}  // namespace
}  // namespace tessera
