// Catches: a client's grammars that throw, crash or compute forever; errors without a reason; and grammars that are too
// slow with a real vocabulary.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <time.h>

#include <chrono>
#include <iostream>
#include <thread>

#include "tessera/engine/grammar/grammar.h"
#include "tessera/engine/grammar/grammar_test_util.h"
#include "tessera/engine/schema/compile.h"
#include "tessera/text/test_data.h"
#include "tessera/text/unicode.h"

namespace tessera {
namespace {

class GrammarLimits : public test::GrammarTest {};

using test::load_model;
using Kind = GrammarSpec::Kind;
using test::demo;
using test::ids_of;
using test::mask_of;
using test::Model;
using ::testing::HasSubstr;

std::string repeated(std::string_view text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

std::string nested_schema(int depth) {
  return repeated(R"({"type":"object","properties":{"a":)", depth) + "{}" + repeated("}}", depth);
}

std::string numbered(std::string_view before, std::string_view after, int times) {
  std::string out;
  for (int i = 0; i < times; ++i)
    out += (i > 0 ? "," : "") + std::string(before) + std::to_string(i) + std::string(after);
  return out;
}

std::string rule_chain(int rules) {
  std::string out = "root ::= r0\n";
  for (int i = 0; i < rules; ++i) out += "r" + std::to_string(i) + " ::= r" + std::to_string(i + 1) + " \"x\"\n";
  return out + "r" + std::to_string(rules) + " ::= \"a\"\n";
}

// Returns `times` schemas, each of which refers to the next: "0" to "1", and so on.
std::string numbered_references(int times) {
  std::string out;
  for (int i = 0; i < times; ++i)
    out += fmt::format(R"({}"{}":{{"$ref":"#/$defs/{}","minLength":1}})", i > 0 ? "," : "", i, i + 1);
  return out;
}

// Returns a schema of 16 properties. Each property allows all but one of 500 long strings. The string that is left out
// differs from property to property.
std::string almost_equal_enums() {
  const std::string text(1000, 'a');
  std::string all;
  for (int i = 0; i < 500; ++i) all += fmt::format("{}\"{}{}\"", i == 0 ? "" : ",", text, i);
  std::string properties;
  for (int i = 0; i < 16; ++i)
    properties +=
        fmt::format(R"({}"p{}":{{"$ref":"#/$defs/all","not":{{"const":"{}{}"}}}})", i == 0 ? "" : ",", i, text, i);
  return fmt::format(R"({{"$defs":{{"all":{{"enum":[{}]}}}},"type":"object","properties":{{{}}}}})", all, properties);
}

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

TEST_F(GrammarLimits, BadSpecsAreRefusedWithAReason) {
  struct Case {
    Kind kind;
    std::string text;
    std::string reason;  // a part of the expected message
    StatusCode code = StatusCode::kInvalidArgument;
  };
  const StatusCode unheld = StatusCode::kUnimplemented;
  const Case cases[] = {
      {Kind::kJsonSchema, "", "JSON schema"},
      {Kind::kJsonSchema, "{\"type\":", "JSON schema"},
      {Kind::kJsonSchema, "[1]", "array"},
      {Kind::kJsonSchema, "false", "cannot accept any value"},
      {Kind::kJsonSchema, R"({"type":"strnig"})", "strnig"},
      {Kind::kJsonSchema, R"({"type":3})", "JSON schema"},
      {Kind::kJsonSchema, R"({"$ref":"#/nowhere"})", "nowhere"},
      {Kind::kJsonSchema, R"({"$ref":"https://example.com/s"})", "example.com", unheld},
      {Kind::kJsonSchema, R"({"$ref":"#"})", "leads back to itself"},
      {Kind::kJsonSchema, R"({"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"})",
       "leads back to itself"},
      {Kind::kJsonSchema, R"({"anyOf":[{"$ref":"#"},{"type":"null"}]})", "leads back to itself"},
      {Kind::kJsonSchema, almost_equal_enums(), "rules of more than 4 MiB"},
      {Kind::kJsonSchema, R"({"type":"integer","minimum":1e18})", "more than 18 digits", unheld},
      {Kind::kJsonSchema, R"({"type":"number","minimum":1e15})", "more than 15 digits", unheld},
      {Kind::kJsonSchema, R"({"properties":{"a":{"contains":{}}}})",
       "JSON schema: #/properties/a: \"contains\": ", unheld},
      {Kind::kJsonSchema, R"({"type":"array","uniqueItems":true})", "uniqueItems", unheld},
      {Kind::kJsonSchema, R"({"items":{"type":"object","minProperties":2}})", "#/items: \"minProperties\"", unheld},
      {Kind::kJsonSchema, R"({"minLength":10000000000})", "#: \"minLength\"", unheld},
      {Kind::kJsonSchema, R"({"type":"string","maxLength":1.5})", "#: \"maxLength\": it is 1.5"},
      {Kind::kJsonSchema, R"({"type":"number","multipleOf":1e-20})", "multipleOf", unheld},
      {Kind::kJsonSchema, R"({"oneOf":[{"type":"integer"},{"type":"number","minimum":3}]})", "#: \"oneOf\"", unheld},
      {Kind::kJsonSchema, R"({"type":"string","pattern":"(a"})", "JSON schema"},
      {Kind::kJsonSchema, R"({"type":"integer","minimum":5,"maximum":4})", "JSON schema"},
      {Kind::kJsonSchema, nested_schema(200), "nested deeper"},
      {Kind::kJsonSchema, repeated("[", 100000), "JSON schema"},
      {Kind::kJsonSchema, "{\"enum\":[\"" + std::string(kMaxGrammarBytes, 'x') + "\"]}", "bytes"},
      {Kind::kRegex, "", "empty"},
      {Kind::kRegex, "(a", "parenthesis"},
      {Kind::kRegex, "a)", "Unmatched"},
      {Kind::kRegex, "[a", "Unclosed"},
      {Kind::kRegex, "a{2,1}", "regex"},
      {Kind::kRegex, "a{99999999999999999999}", "regex"},
      {Kind::kRegex, "*", "regex"},
      {Kind::kRegex, "\\", "Escape"},
      {Kind::kRegex, "(?=a)b", "Lookahead"},
      {Kind::kRegex, "(a)\\1", "Backreference"},
      {Kind::kRegex, "a^b", "'^'", unheld},
      {Kind::kRegex, "\xff", "UTF-8"},
      {Kind::kRegex, std::string("a\0b", 3), "NUL"},
      {Kind::kRegex, repeated("(", 20000) + "a" + repeated(")", 20000), "Nest"},
      {Kind::kRegex, std::string(kMaxPatternBytes + 1, 'a'), "bytes"},
      {Kind::kEbnf, "", "root"},
      {Kind::kEbnf, "root ::=", "EBNF"},
      {Kind::kEbnf, "root ::= nothing", "nothing"},
      {Kind::kEbnf, "root ::= \"a", "EBNF"},
      {Kind::kEbnf, "root ::= a\na ::= b\nb ::= a", "no token"},
      {Kind::kEbnf, rule_chain(kMaxGrammarRules), "bytes"},
      {Kind::kEbnf, "root ::= " + repeated("(", 20000) + "\"a\"" + repeated(")", 20000), "Nest"},
  };
  for (const Case& one : cases) {
    const auto grammar = demo().compiler->compile({one.kind, one.text});
    ASSERT_FALSE(grammar.ok()) << one.text.substr(0, 80);
    EXPECT_EQ(grammar.status().code(), one.code) << one.text.substr(0, 80) << ": " << grammar.status().to_string();
    EXPECT_THAT(grammar.status().message(), HasSubstr(one.reason)) << one.text.substr(0, 80);
  }
}

// A long chain of references must not be refused as a loop.
TEST_F(GrammarLimits, ALongChainOfReferencesIsAccepted) {
  std::string schema = R"({"$ref":"#/$defs/r0","$defs":{)";
  for (int i = 0; i < 500; ++i) schema += fmt::format(R"("r{}":{{"$ref":"#/$defs/r{}"}},)", i, i + 1);
  schema += R"("r500":{"type":"boolean"}}})";
  const auto grammar = demo().compiler->compile({Kind::kJsonSchema, schema});
  EXPECT_TRUE(grammar.ok()) << grammar.status().to_string();
}

// Checks that each spec is refused in bounded time, or compiled and used for a text in bounded time.
TEST_F(GrammarLimits, ExpensiveSpecsEndInBoundedTime) {
  const std::pair<Kind, std::string> cases[] = {
      {Kind::kRegex, "a{1,100000000}"},
      {Kind::kRegex, "(((a{1,1000}){1,1000}){1,1000}){1,1000}"},
      {Kind::kRegex, "(a+)+b"},
      {Kind::kRegex, "(a|b)*a" + repeated("(a|b)", 30)},
      {Kind::kRegex, "(" + repeated("(", 300) + "a" + repeated(")*", 300) + ")*"},
      {Kind::kRegex, repeated("[a-z]", 10000)},
      {Kind::kRegex, repeated("(a*)*", 2000)},
      {Kind::kRegex, ".{0,20000}"},
      {Kind::kEbnf, "root ::= " + repeated("[a-z]* ", 3000)},
      {Kind::kEbnf, "root ::= root root | \"a\" | \"\""},
      {Kind::kEbnf, rule_chain(3000)},
      {Kind::kJsonSchema, R"({"type":"string","maxLength":1000000000})"},
      {Kind::kJsonSchema, R"({"type":"array","items":{},"minItems":100000,"maxItems":100000000})"},
      {Kind::kJsonSchema, "{\"properties\":{" + numbered("\"p", "\":{\"type\":\"string\"}", 3000) + "}}"},
      {Kind::kJsonSchema, "{\"enum\":[" + numbered("\"value ", "\"", 10000) + "]}"},
      {Kind::kJsonSchema, nested_schema(kMaxGrammarDepth / 2 - 1)},
      {Kind::kJsonSchema, R"({"type":"string","pattern":"(a|b)*a(a|b){20}","maxLength":50})"},
      {Kind::kJsonSchema, R"({"type":"string","pattern":"((((){1000}){1000}){1000}){1000}","not":{"const":"a"}})"},
      {Kind::kJsonSchema, R"({"type":"string","pattern":"^(a{1,100}){1,100}$","minLength":5000})"},
      {Kind::kJsonSchema, "{\"allOf\":[" + numbered(R"({"anyOf":[{"minLength":)", R"(},{"maxLength":9}]})", 60) + "]}"},
      {Kind::kJsonSchema,
       "{\"oneOf\":[" + numbered(R"({"required":["k"],"properties":{"k":{"const":)", "}}}", 400) + "]}"},
      {Kind::kJsonSchema, "{\"type\":\"object\",\"patternProperties\":{" + numbered("\"x{", "}.*y\":{}", 6) + "}}"},
      {Kind::kJsonSchema, "{\"minProperties\":900,\"properties\":{" + numbered("\"p", "\":{}", 1000) + "}}"},
      {Kind::kJsonSchema,
       "{\"additionalProperties\":{},\"properties\":{" + numbered("\"property_", "\":{}", 1000) + "}}"},
      {Kind::kJsonSchema, R"({"type":"array","uniqueItems":true,"items":{"type":"integer","minimum":1,"maximum":60}})"},
  };
  for (const auto& [kind, text] : cases) {
    const auto begin = std::chrono::steady_clock::now();
    const auto grammar = demo().compiler->compile({kind, text});
    std::string what = grammar.ok() ? "compiled" : grammar.status().message();
    if (grammar.ok()) {
      GrammarMatcher matcher(*grammar);
      std::mt19937 random(3);
      for (int step = 0; step < 20 && !matcher.finished(); ++step) {
        const std::vector<TokenId> allowed = ids_of(mask_of(demo(), matcher));
        ASSERT_FALSE(allowed.empty()) << text.substr(0, 60);
        const TokenId next = allowed[random() % allowed.size()];
        if (demo().is_end(next)) break;
        ASSERT_TRUE(matcher.accept(next).ok()) << text.substr(0, 60);
      }
    }
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    std::cout << text.substr(0, 40) << ": " << what << ", " << taken.count() << " s\n";
    // The limits count this thread's time. The factor allows for work between two checks of
    // the time, and for a busy machine.
    EXPECT_LT(taken.count(), 6 * kMaxCompileSeconds) << text.substr(0, 60);
  }
}

// Reading a schema is limited in steps (WorkLimit), not in time. The test checks that the limit in steps also keeps the
// time short. It reads schemas without compiling grammars.
TEST_F(GrammarLimits, ReadingASchemaEndsSoon) {
  constexpr double kMostSeconds = 6;  // limit of thread time; a tenth of it is usual, but sanitizers slow the reading
  const auto list = [](std::string_view item, int times) {
    std::string out = repeated(std::string(item) + ",", times);
    out.pop_back();
    return "[" + out + "]";
  };
  std::string wide_class;
  for (char32_t code = 0x20000; code < 0x20000 + 100'000; code += 2) append_utf8(wide_class, code);
  const std::string cases[] = {
      R"({"pattern":")" + repeated("\\\\p{L}", 20000) + "\"}",
      R"({"pattern":")" + repeated("\\\\w", 80000) + "\"}",
      R"({"pattern":"[)" + wide_class + "]\"}",
      R"({"not":{"pattern":")" + repeated("\\\\W", 1400) + "\"}}",
      "{\"oneOf\":" + list("{}", 60000) + "}",
      "{\"oneOf\":[" + numbered("{\"const\":", "}", 6000) + "]}",
      "{\"anyOf\":" + list("{}", 60000) + "}",
      R"({"$ref":"#/$defs/0","$defs":{"5000":{},)" + numbered_references(5000) + "}}",
      R"({"const":{)" + numbered("\"", "\":0", 5000) + R"(},"$defs":{"a":{"const":{)" + numbered("\"", "\":0", 5000) +
          R"(}}},"allOf":)" + list(R"({"$ref":"#/$defs/a"})", 4000) + "}",
      R"({"properties":{)" + numbered("\"c", "\":{}", 6000) + R"(},"dependentRequired":{)" +
          numbered("\"a", "\":[" + numbered("\"b", "\"", 1500) + "]", 8) + "}}",
      R"({"uniqueItems":true,"items":{"enum":[)" + numbered("", "", 30000) + "]}}",
      R"({"properties":{)" + numbered("\"c", R"(":{"format":"uri-reference"})", 6000) + "}}",
      R"({"$id":")" + std::string(100'000, 'x') + R"(","properties":{)" + numbered("\"c", "\":{}", 6000) + "}}",
  };
  for (const std::string& text : cases) {
    ASSERT_LE(text.size(), kMaxGrammarBytes) << text.substr(0, 60);
    const double begin = thread_seconds();
    const auto grammar = schema::compile_schema(text, "");
    const double taken = thread_seconds() - begin;
    std::cout << text.substr(0, 40) << ": " << (grammar.ok() ? "ok" : grammar.status().message().substr(0, 100)) << ", "
              << taken << " s\n";
    EXPECT_LT(taken, kMostSeconds) << text.substr(0, 60);
  }
}

TEST_F(GrammarLimits, RealVocabulary) {
  const std::string path = test::unpacked_shared_data("tokenizers/qwen3.json");
  if (path.empty()) GTEST_SKIP() << "no shared data: tokenizers";
  Model model = load_model(path, {"<|im_end|>", "<|endoftext|>"});
  const auto seconds_since = [](auto begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  const std::pair<const char*, GrammarSpec> cases[] = {
      {"JSON object", {Kind::kJsonObject, ""}},
      {"schema",
       {Kind::kJsonSchema, R"({"type":"object","properties":{"name":{"type":"string"},"n":{"type":"integer"}}})"}},
      {"schema with further properties",
       {Kind::kJsonSchema, R"({"properties":{"name":{"type":"string"},"age":{"type":"integer"}},)"
                           R"("additionalProperties":{"type":"number"},"type":"object"})"}},
      {"schema with formats and patterns",
       {Kind::kJsonSchema, R"({"properties":{"at":{"format":"date-time"},"id":{"type":"string","format":"uuid"},)"
                           R"("mail":{"type":"string","format":"email"},"key":{"type":"string","maxLength":64,)"
                           R"("pattern":"^[a-z][a-z0-9_]*$"}},"required":["at","id","mail","key"],"type":"object"})"}},
      {"regex", {Kind::kRegex, "[A-Za-z ,.]{1,50}"}},
  };
  for (const auto& [name, spec] : cases) {
    auto begin = std::chrono::steady_clock::now();
    const auto grammar = model.compiler->compile(spec);
    ASSERT_TRUE(grammar.ok()) << grammar.status().to_string();
    const double compiled = seconds_since(begin);
    double filled = 0;
    double worst = 0;
    int masks = 0;
    for (unsigned seed = 0; seed < 5; ++seed) {
      GrammarMatcher matcher(*grammar);
      std::mt19937 random(seed);
      std::vector<std::uint32_t> mask(static_cast<std::size_t>(GrammarMatcher::mask_words(model.vocab_size)));
      for (int step = 0; step < 60 && !matcher.finished(); ++step) {
        begin = std::chrono::steady_clock::now();
        matcher.fill_mask(mask);
        const double taken = seconds_since(begin);
        filled += taken;
        worst = std::max(worst, taken);
        ++masks;
        const std::vector<TokenId> allowed = ids_of(mask);
        ASSERT_FALSE(allowed.empty());
        const TokenId next = allowed[random() % allowed.size()];
        if (model.is_end(next)) break;
        const Status accepted = matcher.accept(next);
        ASSERT_TRUE(accepted.ok()) << accepted.to_string();
      }
    }
    std::cout << name << ", " << model.vocab_size << " tokens: compiled in " << compiled * 1e3 << " ms, a mask in "
              << filled / masks * 1e6 << " us, at most " << worst * 1e6 << " us\n";
  }
}

}  // namespace
}  // namespace tessera
