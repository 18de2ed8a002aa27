// Catches: a mask that lets a text leave its grammar or end too early, special tokens and ids past the vocabulary
// inside a grammar, masks and accept() that disagree, schemas whose keywords are silently dropped, and texts from a
// client that throw, crash or compute without end. In a build without xgrammar: a grammar that is not refused.
#include "tessera/engine/grammar.h"

#include <gmock/gmock.h>

#include <chrono>
#include <functional>
#include <iostream>
#include <random>
#include <regex>
#include <thread>

#include "tessera/base/json.h"
#include "tessera/text/test_data.h"
#include "tessera/text/test_tokenizers.h"
#include "tessera/text/tokenizer.h"

namespace tessera {
namespace {

using Kind = GrammarSpec::Kind;
using testing::HasSubstr;

struct Model {
  Tokenizer tokenizer;
  std::int64_t vocab_size;  // with ids past the tokenizer's
  std::vector<TokenId> end_ids;
  std::unique_ptr<GrammarCompiler> compiler;

  bool is_end(TokenId id) const { return std::ranges::find(end_ids, id) != end_ids.end(); }
};

Model make_model(Tokenizer tokenizer, const std::vector<std::string>& ends) {
  std::vector<TokenId> end_ids;
  for (const std::string& end : ends) end_ids.push_back(tokenizer.token_to_id(end).value());
  const std::int64_t vocab_size = tokenizer.vocab_size() + 100;
  auto compiler = GrammarCompiler::create(tokenizer, vocab_size, end_ids);
  EXPECT_TRUE(compiler.ok()) << compiler.status().to_string();
  return {std::move(tokenizer), vocab_size, end_ids, std::move(compiler).value()};
}

Model load_model(const std::string& path, const std::vector<std::string>& ends) {
  Result<Tokenizer> tokenizer = Tokenizer::load(path);
  if (!tokenizer.ok()) throw std::runtime_error(tokenizer.status().to_string());
  return make_model(std::move(tokenizer).value(), ends);
}

Model& demo() {
  static Model model =
      load_model(std::string(TESSERA_SOURCE_DIR) + "/models/demo/tokenizer.json", {"<|endoftext|>", "<|im_end|>"});
  return model;
}

std::vector<std::uint32_t> mask_of(const Model& model, GrammarMatcher& matcher) {
  std::vector<std::uint32_t> mask(static_cast<std::size_t>(GrammarMatcher::mask_words(model.vocab_size)), 0xDEADBEEF);
  matcher.fill_mask(mask);
  return mask;
}

bool is_set(const std::vector<std::uint32_t>& mask, TokenId id) {
  return (mask[id.index() / 32] >> (id.index() % 32) & 1) != 0;
}

std::vector<TokenId> ids_of(const std::vector<std::uint32_t>& mask) {
  std::vector<TokenId> ids;
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(mask.size() * 32); ++i) {
    if (is_set(mask, TokenId(i))) ids.emplace_back(i);
  }
  return ids;
}

// One text: random tokens of the masks, then the shortest way out. `may_end` says of every text on the way whether the
// grammar lets it end there; `exact`: and it may end nowhere else.
struct Walk {
  Model& model;
  GrammarSpec spec;
  std::function<bool(const std::string&)> may_end;
  bool exact = true;

  std::string run(unsigned seed) const {
    const auto grammar = model.compiler->compile(spec);
    EXPECT_TRUE(grammar.ok()) << grammar.status().to_string();
    if (!grammar.ok()) return "";
    GrammarMatcher matcher(*grammar);
    std::mt19937 random(seed);
    std::vector<TokenId> text_ids;
    for (int step = 0; step < 400; ++step) {
      const std::vector<TokenId> allowed = ids_of(mask_of(model, matcher));
      const std::string text = model.tokenizer.decode(text_ids);
      bool ends = false;
      for (const TokenId id : allowed) {
        ends |= model.is_end(id);
        EXPECT_LT(id.value(), model.tokenizer.vocab_size());
        EXPECT_TRUE(model.is_end(id) || !model.tokenizer.is_special(id)) << id.value();
      }
      if (ends || exact) {
        EXPECT_EQ(may_end(text), ends) << "'" << text << "'";
      }
      EXPECT_EQ(matcher.finished(), ends && allowed.size() == model.end_ids.size()) << text;
      if (allowed.empty()) {
        ADD_FAILURE() << "no way on from '" << text << "'";
        return text;
      }
      const TokenId id = step < 12 ? allowed[random() % allowed.size()] : way_out(allowed, random);
      const Status accepted = matcher.accept(id);
      EXPECT_TRUE(accepted.ok()) << accepted.to_string();
      if (!accepted.ok()) return text;
      if (model.is_end(id)) {
        EXPECT_TRUE(matcher.finished());
        EXPECT_FALSE(matcher.accept(id).ok()) << "a token after the end";
        return text;
      }
      text_ids.push_back(id);
    }
    ADD_FAILURE() << "no end after 400 tokens: " << model.tokenizer.decode(text_ids);
    return "";
  }

  TokenId way_out(const std::vector<TokenId>& allowed, std::mt19937& random) const {
    for (const TokenId id : allowed) {
      if (model.is_end(id)) return id;
    }
    for (const char* closing : {"\"", "@", ".", ")", "]", "}"}) {
      const std::optional<TokenId> id = model.tokenizer.token_to_id(closing);
      if (id && std::ranges::find(allowed, *id) != allowed.end()) return *id;
    }
    return allowed[random() % allowed.size()];
  }

  void run_all(unsigned times) const {
    for (unsigned seed = 0; seed < times && !testing::Test::HasFailure(); ++seed) run(seed);
  }
};

class GrammarTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!GrammarCompiler::available()) GTEST_SKIP() << "built without xgrammar";
  }
};

TEST(GrammarAvailability, EveryKindIsRefusedWithoutXgrammar) {
  if (GrammarCompiler::available()) GTEST_SKIP() << "built with xgrammar";
  for (const Kind kind : {Kind::kJsonObject, Kind::kJsonSchema, Kind::kRegex, Kind::kEbnf}) {
    const auto grammar = demo().compiler->compile({kind, "{}"});
    ASSERT_FALSE(grammar.ok());
    EXPECT_EQ(grammar.status().code(), StatusCode::kUnimplemented);
    EXPECT_THAT(grammar.status().message(), HasSubstr("this build has no constrained output"));
  }
}

TEST_F(GrammarTest, RegexTextsMatchAndEndWhereTheyMay) {
  for (const std::string pattern :
       {"[a-z]+@[a-z]{2,8}\\.(com|org)", "(yes|no|maybe)", "-?(0|[1-9][0-9]{0,5})(\\.[0-9]{1,3})?",
        "the (cat|dog)( and the (cat|dog)){0,3}", "a(b|c)*d", "x?", "[^a-y]{3}", "(ab|a)(bc|c)?"}) {
    const std::regex expected(pattern, std::regex::ECMAScript);
    Walk{demo(),
         {Kind::kRegex, pattern},
         [&](const std::string& text) {
           // std::regex takes bytes for characters: hold it to texts that are ASCII.
           if (std::ranges::any_of(text, [](char c) { return static_cast<unsigned char>(c) >= 0x80; })) return true;
           return std::regex_match(text, expected);
         },
         pattern != "[^a-y]{3}"}
        .run_all(40);
  }
}

TEST_F(GrammarTest, JsonObjectsParse) {
  Walk{demo(),
       {Kind::kJsonObject, ""},
       [](const std::string& text) {
         const auto json = Json::parse(text, "output");
         return json.ok() && json->is_object();
       },
       /*exact=*/false}
      .run_all(60);
}

bool has_only(const Json& object, const std::vector<std::string>& keys) {
  return std::ranges::all_of(object.as_object(), [&](const Json::Member& member) {
    return std::ranges::find(keys, member.first) != keys.end();
  });
}

TEST_F(GrammarTest, SchemasAreHeldTo) {
  struct Case {
    const char* schema;
    std::function<bool(const Json&)> holds;
  };
  const Case cases[] = {
      {R"({"type":"object","properties":{"name":{"type":"string","maxLength":4},"age":{"type":"integer"},)"
       R"("tags":{"type":"array","items":{"enum":["x","y",3]},"minItems":1,"maxItems":3}},"required":["name","tags"]})",
       [](const Json& json) {
         if (!json.is_object() || !has_only(json, {"name", "age", "tags"})) return false;
         const Json* name = json.find("name");
         const Json* tags = json.find("tags");
         if (name == nullptr || !name->is_string() || tags == nullptr || !tags->is_array()) return false;
         if (const Json* age = json.find("age"); age != nullptr && !age->is_int()) return false;
         const auto& items = tags->as_array();
         return !items.empty() && items.size() <= 3 && std::ranges::all_of(items, [](const Json& item) {
           return item == Json("x") || item == Json("y") || item == Json(3);
         });
       }},
      {R"({"$defs":{"node":{"type":"object","properties":{"v":{"type":"boolean"},"next":{"anyOf":[{"$ref":)"
       R"("#/$defs/node"},{"type":"null"}]}},"required":["v","next"]}},"$ref":"#/$defs/node"})",
       [](const Json& json) {
         const Json* node = &json;
         while (node != nullptr && node->is_object()) {
           if (node->as_object().size() != 2 || node->find("v") == nullptr || !node->find("v")->is_bool()) return false;
           node = node->find("next");
         }
         return node != nullptr && node->is_null();
       }},
      {R"({"type":"integer","minimum":-3,"maximum":120})",
       [](const Json& json) { return json.is_int() && json.as_int() >= -3 && json.as_int() <= 120; }},
      {R"({"type":"number"})", [](const Json& json) { return json.is_number(); }},
      {R"({"type":["string","null"],"pattern":"^[A-F]{2}[0-9]$"})",
       [](const Json& json) {
         return json.is_null() || (json.is_string() && std::regex_match(json.as_string(), std::regex("[A-F]{2}[0-9]")));
       }},
      {R"({"const":{"a":[1,"b"]}})",
       [](const Json& json) { return json == *Json::parse(R"({"a":[1,"b"]})", "const"); }},
      {R"({"type":"object","additionalProperties":{"type":"boolean"},"maxProperties":2})",
       [](const Json& json) {
         return json.is_object() && json.as_object().size() <= 2 &&
                std::ranges::all_of(json.as_object(),
                                    [](const Json::Member& member) { return member.second.is_bool(); });
       }},
  };
  for (const Case& one : cases) {
    Walk{demo(),
         {Kind::kJsonSchema, one.schema},
         [&](const std::string& text) {
           const auto json = Json::parse(text, "output");
           // JSON that our parser refuses all the same: a key twice where keys are free, a number past double's range.
           const std::string& error = json.status().message();
           if (error.find("duplicate") != std::string::npos || error.find("overflow") != std::string::npos) return true;
           return json.ok() && one.holds(*json);
         },
         /*exact=*/false}
        .run_all(40);
    if (HasFailure()) FAIL() << one.schema;
  }
}

TEST_F(GrammarTest, EbnfIsRecursive) {
  const std::string balanced = "root ::= pair+\npair ::= \"(\" pair* \")\"";
  Walk{demo(),
       {Kind::kEbnf, balanced},
       [](const std::string& text) {
         int depth = 0;
         for (const char c : text) {
           depth += c == '(' ? 1 : -1;
           if (depth < 0 || (c != '(' && c != ')')) return false;
         }
         return depth == 0 && !text.empty();
       }}
      .run_all(20);
}

// The mask and accept() are two ways through xgrammar; they must say the same of every token.
TEST_F(GrammarTest, MaskIsWhatIsAccepted) {
  Model& model = demo();
  for (const GrammarSpec& spec :
       {GrammarSpec{Kind::kRegex, "the [a-z ]{3,9}(end|ending)s?"}, GrammarSpec{Kind::kRegex, "[A-Za-z ,.]{1,300}"},
        GrammarSpec{Kind::kRegex, "[а-я ]{1,200}x?"},
        GrammarSpec{Kind::kJsonSchema, R"({"type":"string","maxLength":200})"},
        GrammarSpec{Kind::kJsonSchema, R"({"type":"object","properties":{"ab":{"type":"string"}}})"}}) {
    const auto grammar = model.compiler->compile(spec);
    ASSERT_TRUE(grammar.ok()) << grammar.status().to_string();
    std::mt19937 random(7);
    std::vector<TokenId> prefix;
    for (int step = 0; step < 6; ++step) {
      const auto matcher_at = [&] {
        GrammarMatcher matcher(*grammar);
        for (const TokenId id : prefix) EXPECT_TRUE(matcher.accept(id).ok());
        return matcher;
      };
      GrammarMatcher here = matcher_at();
      const auto mask = mask_of(model, here);
      for (std::int32_t i = -1; i < model.vocab_size + 2; ++i) {
        const bool accepted = matcher_at().accept(TokenId(i)).ok();
        const bool allowed = i >= 0 && i < model.vocab_size && is_set(mask, TokenId(i));
        ASSERT_EQ(accepted, allowed) << "token " << i << " '" << model.tokenizer.id_to_token(TokenId(i)).value_or("")
                                     << "'";
      }
      const std::vector<TokenId> allowed = ids_of(mask);
      const TokenId next = allowed[random() % allowed.size()];
      if (model.is_end(next)) break;
      prefix.push_back(next);
    }
  }
}

TEST_F(GrammarTest, AForbiddenTokenIsAnErrorThatStays) {
  const auto grammar = demo().compiler->compile({Kind::kRegex, "[0-9]+"});
  ASSERT_TRUE(grammar.ok());
  GrammarMatcher matcher(*grammar);
  const TokenId letter = demo().tokenizer.token_to_id("a").value();
  const TokenId digit = demo().tokenizer.token_to_id("7").value();
  const Status refused = matcher.accept(letter);
  EXPECT_EQ(refused.code(), StatusCode::kInternal);
  EXPECT_THAT(refused.message(), HasSubstr(std::to_string(letter.value())));
  EXPECT_EQ(matcher.accept(digit).code(), StatusCode::kInternal);
  EXPECT_EQ(ids_of(mask_of(demo(), matcher)), demo().end_ids);
}

// EBNF has a way to name tokens.
TEST_F(GrammarTest, SpecialTokensAreNotAllowedEvenByName) {
  const std::int32_t special = demo().tokenizer.token_to_id("<|im_start|>").value().value();
  const auto grammar =
      demo().compiler->compile({Kind::kEbnf, "root ::= \"a\" | Token(" + std::to_string(special) + ")"});
  if (!grammar.ok()) return;
  GrammarMatcher matcher(*grammar);
  EXPECT_FALSE(is_set(mask_of(demo(), matcher), TokenId(special)));
  EXPECT_FALSE(matcher.accept(TokenId(special)).ok());
}

TEST_F(GrammarTest, SentencePieceVocabularies) {
  const std::vector<test::TokenizerCase> cases = test::sentencepiece_cases();
  Model model = make_model(test::load_case(cases.front().json, "sentencepiece"), {"</s>"});
  const auto grammar = model.compiler->compile({Kind::kRegex, "[a-z ]*\\n"});
  ASSERT_TRUE(grammar.ok()) << grammar.status().to_string();
  GrammarMatcher matcher(*grammar);
  const auto mask = mask_of(model, matcher);
  std::size_t spaced = 0;
  for (std::int32_t i = 0; i < model.tokenizer.vocab_size(); ++i) {
    const std::string_view token = model.tokenizer.id_to_token(TokenId(i)).value_or("");
    const bool newline = token == "<0x0A>";
    const bool special = model.tokenizer.is_special(TokenId(i));
    bool plain = !token.empty();
    for (std::size_t at = 0; at < token.size() - token.ends_with('\n');) {
      const bool space = token.substr(at).starts_with("\xE2\x96\x81");
      plain &= space || token[at] == ' ' || (token[at] >= 'a' && token[at] <= 'z');
      spaced += space;
      at += space ? 3 : 1;
    }
    const bool fallback = token == "<0x20>" || (token.starts_with("<0x6") && token != "<0x60>") ||
                          (token.starts_with("<0x7") && token < "<0x7B>");
    EXPECT_EQ(is_set(mask, TokenId(i)), !special && (plain || newline || fallback)) << token;
  }
  EXPECT_GT(spaced, 0u);
}

TEST_F(GrammarTest, GrammarsAreKept) {
  Model model = load_model(std::string(TESSERA_SOURCE_DIR) + "/models/demo/tokenizer.json", {"<|im_end|>"});
  const GrammarSpec spec{Kind::kRegex, "[a-z]+"};
  const auto first = model.compiler->compile(spec);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(*first, *model.compiler->compile(spec));
  EXPECT_NE(*first, *model.compiler->compile({Kind::kEbnf, "root ::= [a-z]+"}));
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(model.compiler->compile({Kind::kRegex, "x" + std::to_string(i)}).ok());
  EXPECT_NE(*first, *model.compiler->compile(spec)) << "kept without end";
}

TEST_F(GrammarTest, ThreadsShareACompilerAndItsGrammars) {
  const auto work = [](unsigned seed) {
    Walk{
        demo(),
        {Kind::kRegex, "[a-d]{2," + std::to_string(4 + seed % 3) + "}"},
        // Not std::regex, whose tables libstdc++ fills without a lock.
        [](const std::string& text) { return text.size() >= 2 && text.find_first_not_of("abcd") == std::string::npos; },
        /*exact=*/false}
        .run_all(20);
    Walk{demo(),
         {Kind::kJsonSchema, R"({"type":"array","items":{"type":"integer"}})"},
         [](const std::string& text) { return Json::parse(text, "output").ok(); },
         /*exact=*/false}
        .run_all(20);
  };
  std::thread other(work, 1);
  work(2);
  other.join();
}

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

TEST_F(GrammarTest, BadSpecsAreRefusedWithAReason) {
  struct Case {
    Kind kind;
    std::string text;
    std::string reason;  // part of the message
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
      {Kind::kJsonSchema, R"({"$ref":"#"})", "no token"},
      {Kind::kJsonSchema, R"({"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"})",
       "no token"},
      {Kind::kJsonSchema, R"({"properties":{"a":{"not":{}}}})", "#/properties/a", unheld},
      {Kind::kJsonSchema, R"({"type":"array","uniqueItems":true})", "uniqueItems", unheld},
      {Kind::kJsonSchema, R"({"items":{"properties":{"a":{}},"required":["a","b"]}})", "#/items: \"b\"", unheld},
      {Kind::kJsonSchema, R"({"type":"number","multipleOf":0.1})", "multipleOf", unheld},
      {Kind::kJsonSchema, R"({"allOf":[{"type":"string"},{"maxLength":3}]})", "allOf", unheld},
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

// Refused or compiled, and then walked: either way soon.
TEST_F(GrammarTest, ExpensiveSpecsEndSoon) {
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
    // The limits are of this thread's time; the rest is for what lies between two checks, and a busy machine.
    EXPECT_LT(taken.count(), 6 * kMaxCompileSeconds) << text.substr(0, 60);
  }
}

TEST_F(GrammarTest, RealVocabulary) {
  const std::string path = test::unpacked_shared_data("tokenizers/qwen3.json");
  if (path.empty()) GTEST_SKIP() << "no shared tokenizers";
  Model model = load_model(path, {"<|im_end|>", "<|endoftext|>"});
  const auto seconds_since = [](auto begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  const std::pair<const char*, GrammarSpec> cases[] = {
      {"JSON object", {Kind::kJsonObject, ""}},
      {"schema",
       {Kind::kJsonSchema, R"({"type":"object","properties":{"name":{"type":"string"},"n":{"type":"integer"}}})"}},
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
