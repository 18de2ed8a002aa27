// Catches: a tool call's value that has another JSON type than the schema says; text that is lost in the conversion;
// and invalid JSON.
#include "tessera/server/tools/parameter_types.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tessera/server/tools/python_literal.h"

namespace tessera {
namespace {

// Returns the JSON that value_as_json() makes of `text` for a parameter with this schema.
std::string value(const std::string& schema, std::string_view text) {
  const Json function = *Json::parse(R"({"$defs": {"Day": {"type": "integer"}, "Loop": {"$ref": "#/$defs/Loop"}},
                                         "properties": {"p": )" +
                                         schema + "}}",
                                     "schema");
  const std::string json = value_as_json(text, parameter_types(&function, "p"));
  EXPECT_TRUE(Json::parse(json, "value").ok()) << json;
  return json;
}

TEST(ParameterTypes, ValuesTakeTheTypeOfTheSchema) {
  EXPECT_EQ(value(R"({"type": "string"})", "12"), R"("12")");
  EXPECT_EQ(value(R"({"type": "string"})", " null\n"), "\" null\\n\"");
  EXPECT_EQ(value(R"({"type": "integer"})", "\n12 "), "12");
  EXPECT_EQ(value(R"({"type": "integer"})", "-98765432109876543210"), "-98765432109876543210");
  EXPECT_EQ(value(R"({"type": "integer"})", "12.5"), R"("12.5")");
  EXPECT_EQ(value(R"({"type": "integer"})", "many"), R"("many")");
  EXPECT_EQ(value(R"({"type": "integer"})", "null"), "null");
  EXPECT_EQ(value(R"({"type": "number"})", "0.50"), "0.50");
  EXPECT_EQ(value(R"({"type": "number"})", "1e-9"), "1e-9");
  EXPECT_EQ(value(R"({"type": "number"})", "007"), R"("007")");
  EXPECT_EQ(value(R"({"type": "number"})", "1."), R"("1.")");
  EXPECT_EQ(value(R"({"type": "boolean"})", "True"), "true");
  EXPECT_EQ(value(R"({"type": "boolean"})", "yes"), R"("yes")");
  EXPECT_EQ(value(R"({"type": "null"})", "None"), "null");
  EXPECT_EQ(value(R"({"type": "object"})", R"( {"a": [1, "é"]} )"), R"({"a": [1, "é"]})");
  EXPECT_EQ(value(R"({"type": "array"})", "[1, 2"), R"("[1, 2")");
  EXPECT_EQ(value(R"({"type": "array"})", "['a', True, None, (1,)]"), R"(["a", true, null, [1]])");
  EXPECT_EQ(value("{}", "7"), R"("7")");
  EXPECT_EQ(value(R"({"description": "no type"})", "null"), R"("null")");
}

TEST(ParameterTypes, ValuesTakeOneOfSeveralTypes) {
  EXPECT_EQ(value(R"({"type": ["integer", "null"]})", "null"), "null");
  EXPECT_EQ(value(R"({"type": ["integer", "string"]})", "7"), "7");
  EXPECT_EQ(value(R"({"type": ["integer", "string"]})", "null"), R"("null")");
  EXPECT_EQ(value(R"({"anyOf": [{"type": "number"}, {"type": "boolean"}]})", "false"), "false");
  EXPECT_EQ(value(R"({"anyOf": [{"type": "string"}, {"type": "null"}]})", "None"), "null");
  EXPECT_EQ(value(R"({"oneOf": [{"items": {}}, {"properties": {}}]})", "{}"), "{}");
  EXPECT_EQ(value(R"({"enum": [1, 2]})", "2"), "2");
  EXPECT_EQ(value(R"({"const": true})", "true"), "true");
  EXPECT_EQ(value(R"({"allOf": [{"$ref": "#/$defs/Day"}]})", "5"), "5");
  EXPECT_EQ(value(R"({"$ref": "#/$defs/Loop"})", "5"), R"("5")");
  EXPECT_EQ(value(R"({"$ref": "#/$defs/None"})", "5"), R"("5")");
  EXPECT_EQ(value(R"({"type": "dict"})", "{'a': 1}"), R"({"a": 1})");
  EXPECT_EQ(value(R"({"type": 7})", "5"), R"("5")");
}

TEST(ParameterTypes, UnknownParametersAreStrings) {
  EXPECT_TRUE(parameter_types(nullptr, "p").has_none());
  EXPECT_TRUE(may_have_parameter(nullptr, "p"));
  const Json schema = *Json::parse(R"({"properties": {"q": {"type": "integer"}}})", "schema");
  EXPECT_TRUE(parameter_types(&schema, "p").is_string());
  EXPECT_FALSE(may_have_parameter(&schema, "p"));
}

TEST(ParameterTypes, StringsAreEscaped) {
  std::string out;
  append_escaped(out, std::string_view("a\"\\/\n\r\t\x01\0é", 11));
  EXPECT_EQ(out, "a\\\"\\\\/\\n\\u000d\\t\\u0001\\u0000é");
}

TEST(PythonLiteral, CollectionsBecomeJson) {
  EXPECT_EQ(python_literal_as_json("{'a': \"it's\", \"b\": [1, -2.5, False], 'c': {}}"),
            R"({"a": "it's", "b": [1, -2.5, false], "c": {}})");
  EXPECT_EQ(python_literal_as_json(R"(['\'', 'a\nb', "\\"])"), R"(["'", "a\nb", "\\"])");
  EXPECT_EQ(python_literal_as_json("[ ]"), "[]");
  for (const char* text :
       {"", "7", "'a'", "[", "[,]", "{1: 2}", "{'a'}", "['a]", "[1] x", "[nan]", "['\\x41']", "[1 2]"})
    EXPECT_EQ(python_literal_as_json(text), std::nullopt) << text;
  EXPECT_EQ(python_literal_as_json(std::string(100'000, '[')), std::nullopt);
}

TEST(PythonLiteral, ResultsAreValidJson) {
  constexpr std::string_view kBytes = "[](){}'\",: 1a-.\\nTrueNone";
  std::mt19937 random(4);
  int read = 0;
  for (int round = 0; round < 200'000; ++round) {
    std::string text = "[";
    for (auto i = random() % 8; i > 0; --i) text += kBytes[random() % kBytes.size()];
    text += ']';
    const auto json = python_literal_as_json(text);
    if (!json) continue;
    ++read;
    const Result<Json> parsed = Json::parse(*json, "value");
    if (!parsed.ok()) {
      ASSERT_THAT(parsed.status().message(), ::testing::HasSubstr("duplicate")) << text;
    }
  }
  EXPECT_GT(read, 1000);
}

}  // namespace
}  // namespace tessera
