// Catches: a mask that lets a text leave its grammar or end too early; a mask that allows special tokens or ids past
// the vocabulary; masks and accept() that disagree; and schemas with keywords that are silently dropped. In a build
// without xgrammar: a grammar that is not refused.
#include "tessera/engine/grammar/grammar.h"

#include <gmock/gmock.h>

#include <functional>
#include <random>
#include <regex>
#include <set>
#include <thread>

#include "tessera/base/json.h"
#include "tessera/engine/grammar/grammar_test_util.h"
#include "tessera/text/test_data.h"
#include "tessera/text/test_tokenizers.h"
#include "tessera/text/tokenizer.h"

namespace tessera {
namespace {

using test::GrammarTest;
using test::load_model;
using test::make_model;
using Kind = GrammarSpec::Kind;
using test::demo;
using test::ids_of;
using test::is_set;
using test::mask_of;
using test::Model;
using test::Walk;
using ::testing::HasSubstr;

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
           // Compares only ASCII texts, because std::regex treats bytes as characters.
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

TEST_F(GrammarTest, TextsFollowTheirSchemas) {
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
           // Tessera's parser refuses two kinds of valid JSON: repeated keys (if the schema leaves keys free), and
           // numbers beyond the range of double.
           const std::string& error = json.status().message();
           if (error.find("duplicate") != std::string::npos || error.find("overflow") != std::string::npos) return true;
           return json.ok() && one.holds(*json);
         },
         /*exact=*/false}
        .run_all(40);
    if (HasFailure()) FAIL() << one.schema;
  }
}

std::set<std::string> texts_of(Model& model, const GrammarSpec& spec) {
  const auto grammar = model.compiler->compile(spec);
  EXPECT_TRUE(grammar.ok()) << grammar.status().to_string();
  std::set<std::string> out;
  std::mt19937 random(5);
  for (int i = 0; grammar.ok() && i < 60; ++i) {
    GrammarMatcher matcher(*grammar);
    std::vector<TokenId> ids;
    bool ended = false;
    while (!ended && ids.size() < 600) {
      const std::vector<TokenId> allowed = ids_of(mask_of(model, matcher));
      const TokenId id = allowed[random() % allowed.size()];
      EXPECT_TRUE(matcher.accept(id).ok());
      ended = model.is_end(id);
      if (!ended) ids.push_back(id);
    }
    EXPECT_TRUE(ended);
    out.insert(model.tokenizer.decode(ids));
  }
  return out;
}

TEST_F(GrammarTest, JsonIsCompactUnlessBlanksAreAskedFor) {
  const GrammarSpec spec{Kind::kJsonSchema, R"({"properties":{"a":{"const":[1,{"b":2}]},"c":{"type":"array",)"
                                            R"("items":{"const":0},"minItems":2,"maxItems":2}},"required":["a","c"],)"
                                            R"("type":"object"})"};
  EXPECT_EQ(texts_of(demo(), spec), std::set<std::string>{R"({"a": [1, {"b": 2}], "c": [0, 0]})"});

  Model& model = demo();
  const auto with = [&](const std::string& pattern) {
    return GrammarCompiler::create(model.tokenizer, model.vocab_size, model.end_ids, {.json_whitespace = pattern});
  };
  Model blanks = load_model(testing::source_path("models/demo/tokenizer.json"), {"<|endoftext|>", "<|im_end|>"});
  blanks.compiler = with(" ?").value();
  const std::set<std::string> texts = texts_of(blanks, {Kind::kJsonSchema, R"({"const":[1]})"});
  EXPECT_EQ(texts, (std::set<std::string>{"[1]", "[ 1]", "[1 ]", "[ 1 ]"}));
  blanks.compiler = with("[\n\t ]*").value();
  for (const std::string& text : texts_of(blanks, spec)) {
    EXPECT_TRUE(Json::parse(text, "output").ok()) << text;
    EXPECT_EQ(text.find(std::string(kMaxJsonWhitespace * 2 + 1, ' ')), std::string::npos) << text;
  }
  EXPECT_FALSE(with("[a ]*").ok());
  EXPECT_THAT(with("^ $").status().message(), HasSubstr("JSON whitespace: \"^ $\" is no pattern of blanks"));
}

// In draft 7, keywords beside a reference have no meaning. A part of a schema with an "$id" of its own may follow
// another draft.
TEST_F(GrammarTest, SchemaPartsFollowTheirOwnDraft) {
  const std::string old = R"("$schema":"http://json-schema.org/draft-07/schema#",)";
  const std::string part = R"("$id":"part","definitions":{"a":{"enum":["a","bb"]},"b":{"properties":{"x":{"const":1}},)"
                           R"("required":["x"],"type":"object"}},)";
  const auto texts = [&](const std::string& draft, const std::string& rest) {
    return texts_of(demo(), {Kind::kJsonSchema,
                             R"({"type":"array","minItems":1,"maxItems":1,"items":{)" + draft + part + rest + "}}"});
  };
  const std::string negated = R"("enum":["a","bb","c"],"not":{"$ref":"#/definitions/a","maxLength":1})";
  EXPECT_EQ(texts(old, negated), (std::set<std::string>{R"(["c"])"}));
  EXPECT_EQ(texts("", negated), (std::set<std::string>{R"(["bb"])", R"(["c"])"}));
  const std::string reference = R"("$ref":"#/definitions/b","type":"object","additionalProperties":false)";
  EXPECT_EQ(texts(old, reference), (std::set<std::string>{R"([{"x": 1}])"}));
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

// The mask and accept() are two code paths of xgrammar and must agree on every token.
TEST_F(GrammarTest, MaskAgreesWithAccept) {
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

// EBNF can name tokens, but special tokens stay forbidden.
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

TEST_F(GrammarTest, CompiledGrammarsAreCached) {
  Model model = load_model(testing::source_path("models/demo/tokenizer.json"), {"<|im_end|>"});
  const GrammarSpec spec{Kind::kRegex, "[a-z]+"};
  const auto first = model.compiler->compile(spec);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(*first, *model.compiler->compile(spec));
  EXPECT_NE(*first, *model.compiler->compile({Kind::kEbnf, "root ::= [a-z]+"}));
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(model.compiler->compile({Kind::kRegex, "x" + std::to_string(i)}).ok());
  EXPECT_NE(*first, *model.compiler->compile(spec)) << "kept without end";
}

TEST_F(GrammarTest, KeptGrammarsAreBoundedInBytes) {
  Model model = load_model(testing::source_path("models/demo/tokenizer.json"), {"<|im_end|>"});
  model.compiler->keep_at_most(64 << 10);
  const GrammarSpec spec{Kind::kRegex, "[a-z]+"};
  ASSERT_TRUE(model.compiler->compile(spec).ok());
  EXPECT_NE(model.compiler->find(spec), nullptr);
  std::string large = "x";
  for (int i = 0; i < 200; ++i) large += "(a|[b-y]{3}" + std::to_string(i) + ")?";
  ASSERT_TRUE(model.compiler->compile({Kind::kRegex, large}).ok());
  EXPECT_EQ(model.compiler->find({Kind::kRegex, large}), nullptr);
  EXPECT_EQ(model.compiler->find(spec), nullptr) << "what was used before a grammar above the bound";
}

TEST_F(GrammarTest, ThreadsShareACompilerAndItsGrammars) {
  const auto work = [](unsigned seed) {
    Walk{
        demo(),
        {Kind::kRegex, "[a-d]{2," + std::to_string(4 + seed % 3) + "}"},
        // Does not use std::regex, because libstdc++ fills its tables without a lock.
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

}  // namespace
}  // namespace tessera
