// Catches: JSON schemas whose grammar lacks a text that the schema accepts, or has a text that the schema refuses.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/engine/grammar/grammar.h"
#include "tessera/engine/grammar/grammar_test_util.h"
#include "tessera/engine/schema/compile.h"

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

// The value of "p" must satisfy both definitions, "a" and "b". The order of the two definitions in the text decides
// which one has the lower address. The grammar must not depend on the addresses.
TEST(SchemaGrammar, IsTheSameForOtherAddressesOfDefinitions) {
  const auto compiled = [](const std::string& definitions) {
    return schema::compile_schema(R"({"properties": {"p": {"$ref": "#/$defs/b"}},
                                      "allOf": [{"properties": {"p": {"$ref": "#/$defs/a"}}}],
                                      "$defs": {)" +
                                      definitions + "}}",
                                  "");
  };
  const std::string a = R"("a": {"type": "object", "properties": {"x": {}}})";
  const std::string b = R"("b": {"type": "object", "properties": {"y": {}}})";
  const Result<std::string> grammar = compiled(a + ", " + b);
  ASSERT_TRUE(grammar.ok()) << grammar.status().to_string();
  EXPECT_EQ(*grammar, compiled(b + ", " + a).value());
}

TEST_F(GrammarSchema, MultiplesOfDecimalFractionsAreToldExactly) {
  expect_texts(R"({"type":"number","multipleOf":0.01})", {"0", "0.07", "1.15", "-19.99", "100", "0.10"},
               {"0.001", "1.005", "1e-3", "-0", "00.1"});
  expect_texts(R"({"type":"number","multipleOf":0.05})", {"0.15", "0.3", "1", "-2.35"}, {"0.12", "0.151", "0.01"});
  expect_texts(R"({"type":"number","multipleOf":0.7})", {"0.7", "2.1", "-4.9", "7"}, {"0.1", "2", "0.77"});
  expect_texts(R"({"type":"number","allOf":[{"multipleOf":0.2},{"multipleOf":0.03}]})", {"0.6", "-1.2", "3"},
               {"0.2", "0.03", "1"});
  expect_texts(R"({"type":"integer","multipleOf":1.5})", {"3", "-6"}, {"1", "2", "4.5"});
}

TEST_F(GrammarSchema, BoundsOfMultiplesAreDecimalsToo) {
  expect_texts(R"({"type":"number","multipleOf":0.1,"minimum":0.25,"exclusiveMaximum":0.5})", {"0.3", "0.4"},
               {"0.2", "0.25", "0.5"});
  expect_texts(R"({"type":"number","multipleOf":0.1,"minimum":0.3,"maximum":0.3})", {"0.3"}, {"0.2", "0.4"});
  expect_texts(R"({"type":"number","multipleOf":0.01,"minimum":0,"maximum":99999999999999.98})",
               {"0.07", "9999999999999.99"}, {"-0.01", "99999999999999.99", "0.001"});
  expect_texts(R"({"multipleOf":0.1,"enum":[0.3,0.35,2]})", {"0.3", "2"}, {"0.35"});
}

TEST_F(GrammarSchema, NumbersApartByDecimalMultiplesExclude) {
  expect_texts(R"({"oneOf":[{"type":"number","multipleOf":0.1,"minimum":0.31,"maximum":0.39},{"const":0.35}]})",
               {"0.35"}, {"0.3", "0.4"});
}

TEST_F(GrammarSchema, NumbersWithNearlyEqualBoundsAreToldApart) {
  expect_texts(R"({"type":"array","minItems":4,"items":false,"prefixItems":[
                   {"type":"number","minimum":0,"maximum":5}, {"type":"number","minimum":0,"maximum":5},
                   {"type":"number","exclusiveMinimum":0,"maximum":5}, {"type":"integer","minimum":0,"maximum":5}]})",
               {"[0, 5, 5, 5]", "[0.5, 0, 0.5, 0]"}, {"[0, 0, 0, 0]", "[0, 0, 1, 0.5]", "[0, 6, 1, 0]"});
}

// The range from 1 to 5 has multiples of 2 and multiples of 3, but no multiple of both.
TEST_F(GrammarSchema, MultiplesWithoutANumberAreLeftOut) {
  expect_texts(R"({"anyOf":[{"const":"a"},{"type":"integer","minimum":1,"maximum":5,
                   "allOf":[{"multipleOf":2},{"multipleOf":3}]}]})",
               {R"("a")"}, {"2", "3"});
}

TEST_F(GrammarSchema, PatternsOfNamesMayLookAhead) {
  expect_texts(R"({"patternProperties":{"^(?!tag$|cat)[a-z]+$":{"type":"null"}},"additionalProperties":false})",
               {R"({"dog": null})", R"({"tags": null})", "{}"},
               {R"({"tag": null})", R"({"cats": null})", R"({"dog": 1})"});
  expect_texts(R"({"patternProperties":{"^(?!a)(?!b)[a-z]$":{"const":1}},"additionalProperties":{"const":2}})",
               {R"({"c": 1})", R"({"a": 2})", R"({"b": 2})", R"({"cc": 2})"},
               {R"({"c": 2})", R"({"a": 1})", R"({"b": 1})", R"({"cc": 1})"});
}

TEST_F(GrammarSchema, PropertyNamesMayLeaveNamesOut) {
  expect_texts(R"({"propertyNames":{"not":{"enum":["a","b"]}},"additionalProperties":{"const":1}})",
               {R"({"c": 1})", R"({"ab": 1})"}, {R"({"a": 1})", R"({"b": 1})"});
  expect_texts(
      R"({"propertyNames":{"oneOf":[{"enum":["a","b"]},{"pattern":"^[bc]$"}]},"additionalProperties":{"const":1}})",
      {R"({"a": 1})", R"({"c": 1})"}, {R"({"b": 1})", R"({"d": 1})"});
}

TEST_F(GrammarSchema, LongEnumsAreUniqueInTheirOrder) {
  std::string values;
  for (int i = 0; i < 100; ++i) values += (i > 0 ? ",\"v" : "\"v") + std::to_string(i) + "\"";
  expect_texts(R"({"type":"array","uniqueItems":true,"items":{"enum":[)" + values + "]}}",
               {"[]", R"(["v3", "v99"])", R"(["v0", "v1", "v2"])"}, {R"(["v3", "v3"])", R"(["w"])"});
}

TEST_F(GrammarSchema, LongPatternsKeepTheirMaximalLength) {
  const std::string at_most = "https://example.org/" + std::string(8, 'a');
  expect_texts(R"({"type":"string","format":"uri","maxLength":255})", {'"' + at_most + '"'},
               {"\"https://example.org/" + std::string(236, 'a') + '"', "\"no uri\""});
}

}  // namespace
}  // namespace tessera
