// Catches: grammars that allow single-byte tokens which spell invalid UTF-8 (overlong forms, surrogates, characters
// beyond Unicode), or which begin a character that the grammar cannot complete.
#include <gmock/gmock.h>

#include <random>
#include <string>

#include "tessera/engine/grammar/grammar.h"
#include "tessera/engine/grammar/grammar_test_util.h"
#include "tessera/engine/grammar/grammar_vocabulary.h"
#include "tessera/text/unicode.h"

namespace tessera {
namespace {

class GrammarUtf8 : public test::GrammarTest {};

using Kind = GrammarSpec::Kind;

// Generates a text of up to 12 tokens, with bytes above ASCII where they are allowed.
std::string high_text(const GrammarSpec& spec, unsigned seed) {
  test::Model& model = test::demo();
  static const auto vocabulary = GrammarVocabulary::create(model.tokenizer, model.vocab_size, model.end_ids);
  EXPECT_TRUE(vocabulary.ok());
  const auto grammar = model.compiler->compile(spec);
  EXPECT_TRUE(grammar.ok()) << grammar.status().to_string();
  if (!grammar.ok()) return "";
  GrammarMatcher matcher(*grammar);
  std::mt19937 random(seed);
  std::string text;
  for (int step = 0; step < 12; ++step) {
    std::vector<TokenId> allowed = test::ids_of(test::mask_of(model, matcher));
    EXPECT_TRUE(matcher.status().ok()) << matcher.status().to_string() << " after " << ::testing::PrintToString(text);
    std::erase_if(allowed, [&](TokenId id) { return model.is_end(id); });
    if (allowed.empty() || ::testing::Test::HasFailure()) break;
    std::vector<TokenId> high;
    std::ranges::copy_if(allowed, std::back_inserter(high),
                         [&](TokenId id) { return (vocabulary->bytes[id.index()][0] & 0x80) != 0; });
    const std::vector<TokenId>& from = high.empty() ? allowed : high;
    const TokenId id = from[random() % from.size()];
    const Status accepted = matcher.accept(id);
    EXPECT_TRUE(accepted.ok()) << accepted.to_string();
    text += vocabulary->bytes[id.index()];
  }
  return text;
}

TEST_F(GrammarUtf8, EveryTextIsUtf8) {
  for (const GrammarSpec& spec : {
           GrammarSpec{Kind::kJsonSchema, R"({"type":"string","minLength":2,"maxLength":40})"},
           GrammarSpec{Kind::kJsonSchema, R"({"type":"string"})"},
           GrammarSpec{Kind::kJsonSchema, R"({"type":"string","pattern":"^[^a]{20}$"})"},
           GrammarSpec{Kind::kRegex, "[^a]{20}"},
           GrammarSpec{Kind::kRegex, "[^a]*b"},
           GrammarSpec{Kind::kRegex, "\\D+"},
           GrammarSpec{Kind::kRegex, "[\\S]{20}"},
           GrammarSpec{Kind::kRegex, ".{20}"},
           GrammarSpec{Kind::kRegex, "[^\u0400-\u04ff]{20}"},
           GrammarSpec{Kind::kRegex, "([^\u0080-\u0fff\u2000-\U0010ffff]x)*"},
           GrammarSpec{Kind::kRegex, "[\u0400-\u04ff\ud7ff-\ue000]*"},
           GrammarSpec{Kind::kEbnf, "root ::= [^a-z\"\\\\]*"},
           GrammarSpec{Kind::kEbnf, "root ::= [^\\u0080-\\u07ff]+ \"x\""},
           GrammarSpec{Kind::kEbnf, "root ::= [\\ud000-\\uffff]+"},
           GrammarSpec{Kind::kEbnf, "root ::= \"a\" part{3,9}\npart ::= [^b] | \"\\u00e9\""},
       }) {
    for (unsigned seed = 0; seed < 100 && !HasFailure(); ++seed) {
      const std::string text = high_text(spec, seed);
      EXPECT_EQ(find_invalid_utf8(text.substr(0, complete_utf8_prefix(text))), std::string::npos)
          << spec.text << ": " << ::testing::PrintToString(text);
    }
  }
}

TEST_F(GrammarUtf8, RefusesInvalidCharacters) {
  for (const GrammarSpec& spec : {
           GrammarSpec{Kind::kRegex, "a\\ud83d\\ude00"},
           GrammarSpec{Kind::kRegex, "a\\u{110000}"},
           GrammarSpec{Kind::kRegex, "[\\ud800-\\udfff]"},
           GrammarSpec{Kind::kRegex, "a|[^\\x00-\\U0010FFFF]"},
           GrammarSpec{Kind::kEbnf, "root ::= \"\\ud83d\""},
           GrammarSpec{Kind::kEbnf, "root ::= \"\\U00110000\""},
           GrammarSpec{Kind::kEbnf, "root ::= \"\\UfffffffF\""},
           GrammarSpec{Kind::kEbnf, "root ::= [^\\x00-\\U7fffffff]"},
       }) {
    const auto grammar = test::demo().compiler->compile(spec);
    ASSERT_FALSE(grammar.ok()) << spec.text;
    EXPECT_EQ(grammar.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(grammar.status().message(), ::testing::HasSubstr("haracter")) << spec.text;
  }
}

}  // namespace
}  // namespace tessera
