// Catches: a pattern in quantisation settings that does not match a module which it describes; a pattern that matches a
// module whose name is only similar.
#include "tessera/model/formats/name_patterns.h"

#include "tessera/model/test_support.h"

namespace tessera {
namespace {

using test::expect_error;

bool matches(std::string_view pattern, std::string_view module) {
  NamePatterns patterns;
  const Status added = patterns.add(pattern);
  EXPECT_TRUE(added.ok()) << added.message();
  const Result<bool> found = patterns.matches(module);
  EXPECT_TRUE(found.ok()) << found.status().message();
  return found.ok() && *found;
}

TEST(NamePatterns, MatchWholeWordsOnly) {
  EXPECT_TRUE(matches("lm_head", "lm_head"));
  EXPECT_TRUE(matches("lm_head", "model.language_model.lm_head"));
  EXPECT_TRUE(matches("mlp.gate", "model.layers.3.mlp.gate"));
  EXPECT_TRUE(matches("gate", "model.layers.3.mlp.gate"));
  EXPECT_FALSE(matches("mlp.gate", "model.layers.3.mlp.gate_proj"));
  EXPECT_FALSE(matches("head", "lm_head"));
  EXPECT_FALSE(matches("layers.1", "model.layers.10.mlp.up_proj"));
  EXPECT_FALSE(matches("model.layers.1", "model.layers.10.mlp.up_proj"));
}

TEST(NamePatterns, MatchWhatAModuleContains) {
  EXPECT_TRUE(matches("model.visual", "model.visual.blocks.3.attn.qkv"));
  EXPECT_TRUE(matches("model.layers.1", "model.layers.1.mlp.up_proj"));
  EXPECT_TRUE(matches("self_attn", "model.layers.1.self_attn.q_proj"));
  EXPECT_TRUE(matches("mlp.gate.", "model.layers.1.mlp.gate"));
  EXPECT_FALSE(matches("model.layers.1.mlp.up_proj", "model.layers.1.mlp"));
}

TEST(NamePatterns, MatchUnderEveryPrefixOfTheLanguageModel) {
  for (const char* prefix : {"", "model.", "model.language_model.", "language_model.model.", "language_model."})
    for (const char* other : {"", "model.", "model.language_model.", "language_model.model.", "language_model."}) {
      const std::string module = std::string(other) + "layers.4.mlp.gate";
      EXPECT_TRUE(matches(std::string(prefix) + "layers.4.mlp.gate", module)) << prefix << " and " << other;
      EXPECT_TRUE(matches(std::string(prefix) + "layers.4.mlp*", module)) << prefix << " and " << other;
      EXPECT_TRUE(matches("re:" + std::string(prefix) + "layers[.]4[.].*gate$", module)) << prefix << " and " << other;
    }
  EXPECT_FALSE(matches("model.layers.4.mlp.gate", "mtp.layers.4.mlp.gate")) << "another model";
}

TEST(NamePatterns, StarsStandForAnyCharacters) {
  EXPECT_TRUE(matches("model.layers.*.self_attn", "model.layers.12.self_attn.q_proj"));
  EXPECT_TRUE(matches("model.layers.0.self_attn*", "model.layers.0.self_attn.q_proj"));
  EXPECT_TRUE(matches("mtp*", "mtp.layers.0.mlp.up_proj"));
  EXPECT_TRUE(matches("*lm_head", "language_model.lm_head"));
  EXPECT_TRUE(matches("*language_model*gate", "model.language_model.layers.0.mlp.gate"));
  EXPECT_FALSE(matches("model.layers.*.self_attn", "model.layers.12.mlp.up_proj"));
  EXPECT_FALSE(matches("*.gate", "model.layers.0.mlp.gate_proj"));
}

TEST(NamePatterns, ExpressionsMatchFromTheBeginning) {
  EXPECT_TRUE(matches("re:.*mlp\\.(gate|up)_proj", "model.layers.0.mlp.up_proj"));
  EXPECT_TRUE(matches("re:model[.]layers", "model.layers.0.mlp.up_proj")) << "a beginning is enough";
  EXPECT_FALSE(matches("re:mlp", "model.layers.0.mlp.up_proj"));
  EXPECT_FALSE(matches("re:.*up_proj$", "model.layers.0.mlp.up_proj.inner"));
  EXPECT_FALSE(matches("re:model[.].*", "lm_head"));
}

TEST(NamePatterns, NegativeLookaheadTriesNoOtherPrefixes) {
  constexpr const char* kNotText = "re:^(?!model[.]language_model).*proj$";
  EXPECT_FALSE(matches(kNotText, "model.language_model.layers.0.mlp.up_proj"));
  EXPECT_TRUE(matches(kNotText, "model.visual.blocks.0.proj"));
}

TEST(NamePatterns, RefuseWrongAndEndlessExpressions) {
  NamePatterns patterns;
  expect_error(patterns.add("re:mlp(gate"), StatusCode::kInvalidArgument, {"re:mlp(gate", "at byte"});
  expect_error(patterns.add("..."), StatusCode::kInvalidArgument, {"no name"});
  expect_error(patterns.add(""), StatusCode::kInvalidArgument, {"no name"});
  EXPECT_TRUE(patterns.empty());
  ASSERT_TRUE(patterns.add("re:(a+)+$").ok());
  expect_error(patterns.matches(std::string(64, 'a') + "b"), StatusCode::kResourceExhausted, {"(a+)+$", "limit"});
}

}  // namespace
}  // namespace tessera
