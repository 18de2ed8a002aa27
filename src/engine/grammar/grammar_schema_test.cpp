// Catches: JSON schemas whose grammar lacks a text that they accept, or has one that they do not.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/engine/grammar/grammar.h"
#include "tessera/engine/grammar/grammar_test_util.h"

namespace tessera {
namespace {

using test::demo;
using test::Model;
using Kind = GrammarSpec::Kind;

class GrammarSchema : public test::GrammarTest {};

bool has_text(const std::shared_ptr<const Grammar>& grammar, std::string_view text) {
  Model& model = demo();
  GrammarMatcher matcher(grammar);
  const std::vector<TokenId> ids = model.tokenizer.encode(text).value();
  for (const TokenId id : ids) {
    if (!matcher.accept(id).ok()) return false;
  }
  return matcher.accept(model.end_ids.front()).ok();
}

void expect_texts(const std::string& schema, const std::vector<std::string>& accepted,
                  const std::vector<std::string>& refused) {
  const auto grammar = demo().compiler->compile({Kind::kJsonSchema, schema});
  ASSERT_TRUE(grammar.ok()) << schema << ": " << grammar.status().to_string();
  for (const std::string& text : accepted) EXPECT_TRUE(has_text(*grammar, text)) << schema << ": " << text;
  for (const std::string& text : refused) EXPECT_FALSE(has_text(*grammar, text)) << schema << ": " << text;
}

TEST_F(GrammarSchema, LongPatternsKeepTheirMaximalLength) {
  const std::string at_most = "https://example.org/" + std::string(8, 'a');
  expect_texts(R"({"type":"string","format":"uri","maxLength":255})", {'"' + at_most + '"'},
               {"\"https://example.org/" + std::string(236, 'a') + '"', "\"no uri\""});
}

}  // namespace
}  // namespace tessera
