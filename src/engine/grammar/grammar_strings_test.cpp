// Catches: strings that break the minLength or maxLength of their JSON schema; grammars that allow no escape in a
// string, or count an escape as several characters; and counts that are mixed up between several strings.
#include <gtest/gtest.h>

#include <cctype>
#include <map>
#include <random>

#include "tessera/engine/grammar/grammar.h"
#include "tessera/engine/grammar/grammar_test_util.h"
#include "tessera/engine/grammar/grammar_vocabulary.h"
#include "tessera/text/unicode.h"

namespace tessera {
namespace {

using test::demo;
using test::ids_of;
using test::is_set;
using test::mask_of;
using test::Model;
using Kind = GrammarSpec::Kind;

class GrammarStrings : public test::GrammarTest {};

const std::vector<std::string>& bytes_of_tokens() {
  static const std::vector<std::string> bytes =
      GrammarVocabulary::create(demo().tokenizer, demo().vocab_size, demo().end_ids).value().bytes;
  return bytes;
}

struct Prefix {
  bool possible = false;  // the text is a string or the beginning of one
  bool complete = false;  // the text is a whole string
};

// Says whether `text` is a JSON string, or the beginning of one, with `min` to `max` characters (-1: unbounded) and
// without halves of surrogate pairs.
Prefix read_string(std::string_view text, int min, int max) {
  constexpr Prefix kNone{false, false};
  constexpr Prefix kOpen{true, false};
  if (text.empty()) return kOpen;
  if (text[0] != '"') return kNone;
  int count = 0;
  for (std::size_t at = 1; at < text.size();) {
    if (text[at] == '"') return at + 1 == text.size() && count >= min ? Prefix{true, true} : kNone;
    if (++count > max && max >= 0) return kNone;
    if (text[at] != '\\') {
      const Utf8Step step = decode_utf8(text, at);
      if (static_cast<unsigned char>(text[at]) < 0x20 || step.kind == Utf8Step::Kind::kIllFormed) return kNone;
      if (step.kind == Utf8Step::Kind::kIncomplete) return kOpen;
      at += step.length;
      continue;
    }
    const std::string_view escape = text.substr(at + 1, 5);
    if (escape.empty()) return kOpen;
    if (escape[0] != 'u') {
      if (std::string_view("\"\\/bfnrt").find(escape[0]) == std::string_view::npos) return kNone;
      at += 2;
      continue;
    }
    for (std::size_t i = 1; i < escape.size(); ++i) {
      if (std::isxdigit(static_cast<unsigned char>(escape[i])) == 0) return kNone;
      if (i == 2 && (escape[1] == 'd' || escape[1] == 'D') && escape[2] > '7') return kNone;
    }
    if (escape.size() < 5) return kOpen;
    at += 6;
  }
  return kOpen;
}

std::string string_schema(int min, int max) {
  std::string out = R"({"type":"string","minLength":)" + std::to_string(min);
  if (max >= 0) out += ",\"maxLength\":" + std::to_string(max);
  return out + "}";
}

TEST_F(GrammarStrings, EveryMaskIsThatOfTheLengths) {
  Model& model = demo();
  const std::vector<std::string>& bytes = bytes_of_tokens();
  const std::pair<int, int> lengths[] = {{0, 0},  {0, 1},   {1, 1},    {0, 3},  {2, 2}, {3, 8},
                                         {0, 40}, {30, 60}, {0, 5000}, {1, -1}, {9, -1}};
  for (const auto& [min, max] : lengths) {
    const auto grammar = model.compiler->compile({Kind::kJsonSchema, string_schema(min, max)});
    ASSERT_TRUE(grammar.ok()) << grammar.status().to_string();
    for (unsigned seed = 0; seed < 4; ++seed) {
      std::mt19937 random(seed);
      GrammarMatcher matcher(*grammar);
      std::string text;
      for (int step = 0; step < 30; ++step) {
        const auto mask = mask_of(model, matcher);
        std::vector<TokenId> next;
        for (std::int32_t i = 0; i < model.vocab_size; ++i) {
          const TokenId id(i);
          const bool known = id.index() < bytes.size() && !bytes[id.index()].empty();
          const bool expected = model.is_end(id) ? read_string(text, min, max).complete
                                                 : known && read_string(text + bytes[id.index()], min, max).possible;
          ASSERT_EQ(is_set(mask, id), expected)
              << min << " to " << max << ": " << text << " + " << (known ? bytes[id.index()] : std::to_string(i));
          if (expected && known) next.push_back(id);
        }
        if (next.empty()) break;
        // Collects rare tokens: tokens with escapes, and tokens of a single byte, which may begin a character.
        std::vector<TokenId> rare;
        std::ranges::copy_if(next, std::back_inserter(rare), [&](TokenId id) {
          return bytes[id.index()].find('\\') != std::string::npos || bytes[id.index()].size() == 1;
        });
        const std::vector<TokenId>& from = random() % 2 == 0 && !rare.empty() ? rare : next;
        const TokenId id = from[random() % from.size()];
        ASSERT_TRUE(matcher.accept(id).ok());
        text += bytes[id.index()];
      }
    }
  }
}

// Returns whether the grammar accepts the text. Reads the text twice, byte by byte and in the longest tokens; both
// readings must agree.
bool takes(const std::shared_ptr<const Grammar>& grammar, std::string_view text) {
  static const std::map<std::string, TokenId, std::less<>> ids = [] {
    std::map<std::string, TokenId, std::less<>> out;
    for (std::size_t i = 0; i < bytes_of_tokens().size(); ++i) {
      if (!bytes_of_tokens()[i].empty()) out.emplace(bytes_of_tokens()[i], TokenId(static_cast<std::int32_t>(i)));
    }
    return out;
  }();
  const auto in_tokens = [&](std::size_t longest) {
    GrammarMatcher matcher(grammar);
    for (std::size_t at = 0; at < text.size();) {
      auto found = ids.end();
      for (std::size_t size = std::min(longest, text.size() - at); found == ids.end() && size > 0; --size) {
        found = ids.find(text.substr(at, size));
      }
      if (found == ids.end() || !is_set(mask_of(demo(), matcher), found->second)) return false;
      EXPECT_TRUE(matcher.accept(found->second).ok());
      at += found->first.size();
    }
    return is_set(mask_of(demo(), matcher), demo().end_ids.front());
  };
  const bool taken = in_tokens(1);
  EXPECT_EQ(taken, in_tokens(16)) << text;
  return taken;
}

struct Case {
  std::string schema;
  std::vector<std::string> good;
  std::vector<std::string> bad;
};

TEST_F(GrammarStrings, TextsOfSchemas) {
  const std::string pair = "\xF0\x9F\x98\x80";  // U+1F600, which is two code units in UTF-16
  const Case cases[] = {
      {R"({"type":"string","maxLength":3})",
       {R"("")", R"("abc")", R"("\n\"\\")", R"("\u0041\/\t")", "\"" + pair + pair + pair + "\""},
       {R"("abcd")", R"("\n\"\\x")", R"("\u0041bcd")", "\"" + pair + pair + pair + "a\"", R"("\ud83d\ude00")",
        "\"a\nb\""}},
      {R"({"type":"string","minLength":2})",
       {R"("\n\t")", "\"a" + pair + "\"", R"("a long text\n")"},
       {R"("")", R"("\n")", "\"" + pair + "\""}},
      {R"({"type":"string","minLength":2,"maxLength":2})", {R"("\\\\")", R"("\"a")"}, {R"("\\")", R"("\\\\\\")"}},
      // A string with a pattern and bounds on its length.
      {R"({"type":"string","pattern":"^[a-z]+$","maxLength":40})",
       {R"("abc")"},
       {R"("")", R"("aBc")", "\"" + std::string(41, 'a') + "\""}},
      {R"({"type":"string","pattern":"^\\S+$","minLength":3,"maxLength":4})",
       {R"("a\"\\")", R"("é\"z!")"},
       {R"("a b")", R"("a\"")", R"("abcde")", R"("a\nb")"}},
      {R"({"type":"string","pattern":"^[A-Z]","maxLength":300})",
       {R"("A")", R"("A\n\"b")"},
       {R"("")", R"("a")", "\"A" + std::string(300, 'a') + "\""}},
      {R"({"type":"string","pattern":"^(?:v[0-9]{1,30}|[a-f]{2,20})$","maxLength":10})",
       {R"("v1")", R"("ab")", R"("v123456789")"},
       {R"("v")", R"("a")", R"("v1234567890")", R"("v1a")"}},
      {R"({"type":"string","pattern":"a","minLength":2,"maxLength":4})",
       {R"("ab")", R"("\nxya")"},
       {R"("a")", R"("bcd")", R"("abcde")"}},
      // Strings that have different bounds on their length, may begin at the same place, and share one rule for
      // characters.
      {R"({"anyOf":[{"type":"string","maxLength":2},{"type":"string","minLength":4,"maxLength":4}]})",
       {R"("")", R"("a")", R"("ab")", R"("abcd")"},
       {R"("abc")", R"("abcde")"}},
      {R"({"anyOf":[{"type":"object","properties":{"a":{"type":"string","maxLength":2},"b":{"type":"null"}},"required":["a","b"]},)"
       R"({"type":"object","properties":{"a":{"type":"string","maxLength":2},"c":{"type":"null"}},"required":["a","c"]},)"
       R"({"type":"object","properties":{"a":{"type":"string","minLength":3,"maxLength":5},"d":{"type":"null"}},"required":["a","d"]}]})",
       {R"({"a": "", "b": null})", R"({"a": "", "c": null})", R"({"a": "xy", "c": null})",
        R"({"a": "xyz\n", "d": null})"},
       {R"({"a": "xyz", "c": null})", R"({"a": "xy", "d": null})", R"({"a": "", "d": null})"}},
      // Many strings of bounded lengths.
      {R"({"type":"array","maxItems":3,"items":{"type":"array","items":{"type":"string","minLength":1,"maxLength":2}}})",
       {R"([["a", "bc"], [], ["\"", "\u0041\u0042"]])"},
       {R"([[""]])", R"([["a", "bcd"]])", R"([["a"], ["b"], ["c"], ["d"]])"}},
      {R"({"type":"object","additionalProperties":{"type":"string","maxLength":2},"propertyNames":{"maxLength":3}})",
       {R"({"abc": "a", "\n": "\"\""})", "{}"},
       {R"({"abcd": "a"})", R"({"a": "bcd"})"}},
  };
  for (const Case& one : cases) {
    const auto grammar = demo().compiler->compile({Kind::kJsonSchema, one.schema});
    ASSERT_TRUE(grammar.ok()) << one.schema << ": " << grammar.status().to_string();
    for (const std::string& text : one.good) EXPECT_TRUE(takes(*grammar, text)) << one.schema << ": " << text;
    for (const std::string& text : one.bad) EXPECT_FALSE(takes(*grammar, text)) << one.schema << ": " << text;
  }
}

// xgrammar can count the characters of a repetition instead of writing out every repetition. Counting is correct only
// if the text after the repetition begins with none of the repeated characters. This test checks a client's own EBNF.
TEST_F(GrammarStrings, TextsOfRepetitions) {
  const std::string many(150, 'a');
  const Case cases[] = {
      {"root ::= [a-z]{2,4} \"1\"", {"ab1", "abcd1"}, {"a1", "abcde1", "ab"}},
      {"root ::= [a-z]{2,4} \"az\"", {"abaz", "azaz", "aaaaaz"}, {"az", "aaz", "abcdeaz"}},
      {"root ::= ([a-z] | \"ab1\"){2,4} \"!\"", {"ab!", "ab1c!", "ab1ab1ab1z!"}, {"ab1!", "abcde!"}},
      {"root ::= ([a-z] | [b-y] \"1\"){2,3} \"!\"", {"bb!", "b1b!", "b1c1d1!"}, {"b1!", "a1b!", "abcd!"}},
      {"root ::= ([a-z] \"\"){0,3} \"!\"", {"!", "abc!"}, {"abcd!"}},
      {"root ::= c{0,3} \"!\" c\nc ::= [a-z] | \"0\"", {"!a", "a0b!0"}, {"!", "abcd!a"}},
      {"root ::= x \"!\" | x \"?\"\nx ::= [a-z]{0,140}", {"!", "?", "abc?"}, {many + "!"}},
      {"root ::= [é-ü]{0,3} \"é\"", {"é", "ééé", "üüüé"}, {"üüüüé", "ü"}},
  };
  for (const Case& one : cases) {
    const auto grammar = demo().compiler->compile({Kind::kEbnf, one.schema});
    ASSERT_TRUE(grammar.ok()) << one.schema << ": " << grammar.status().to_string();
    for (const std::string& text : one.good) EXPECT_TRUE(takes(*grammar, text)) << one.schema << ": " << text;
    for (const std::string& text : one.bad) EXPECT_FALSE(takes(*grammar, text)) << one.schema << ": " << text;
  }
}

}  // namespace
}  // namespace tessera
