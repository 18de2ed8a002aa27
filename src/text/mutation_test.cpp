// Catches: crashes, hangs and sanitizer findings with damaged files. The tests make thousands of deterministic
// mutations of this folder's tokenizers and templates, and load each of them. If a mutation loads without an error, the
// tests also use it.
#include <gtest/gtest.h>

#include <random>

#include "tessera/text/chat/chat_template.h"
#include "tessera/text/test_data.h"
#include "tessera/text/test_tokenizers.h"
#include "tessera/text/tokenizer.h"
#include "tessera/text/unicode.h"

namespace tessera {
namespace {

using Random = std::mt19937;

std::size_t below(Random& random, std::size_t limit) { return limit == 0 ? 0 : random() % limit; }

// Makes one change: a byte replaced, a part removed, doubled or moved, or a word of the language inserted.
template <std::size_t size>
void mutate(std::string& text, const char* const (&words)[size], Random& random) {
  const std::size_t at = below(random, text.size() + 1);
  const std::size_t length = below(random, 12);
  switch (random() % 5) {
    case 0:
      if (at < text.size()) text[at] = static_cast<char>(random() % 256);
      break;
    case 1: text.erase(at, length); break;
    case 2: text.insert(at, text.substr(at, length)); break;
    case 3: text.insert(at, text.substr(below(random, text.size()), length)); break;
    default: text.insert(at, words[random() % size]);
  }
}

TEST(Mutation, TokenizersNeverCrash) {
  constexpr const char* kWords[] = {"null",      "-1",         "4294967296",
                                    "1e400",     "\"\"",       "{}",
                                    "[",         "]",          "{\"type\": \"Sequence\"}",
                                    "\\u0000",   "\\ud800",    "[[",
                                    "\"Regex\"", "\"String\"", "(",
                                    "(?i",       "{1,99999}",  "\\\\p{L}",
                                    "\\\\K",     "(a*)*"};
  // The seeds are tokenizers with short lists. With long lists, most mutations would hit a list, and few would hit
  // other fields.
  std::vector<std::string> seeds;
  for (const auto& tokenizers : {test::step_cases(), test::sentencepiece_cases()}) {
    for (const auto& entry : tokenizers) {
      Json file = *Json::parse(entry.json, entry.name);
      Json model = *file.find("model");
      model
          .set("vocab",
               *Json::parse(R"({"a": 0, "b": 1, "ab": 2, "<0x0A>": 3, "Ġ": 4, "▁": 5, "<unk>": 6, "Ġa": 7})", "vocab"))
          .set("merges", *Json::parse(R"(["a b", ["Ġ", "a"]])", "merges"));
      file.set("model", model)
          .set("added_tokens", *Json::parse(R"([{"id": 9, "content": "<x>", "lstrip": true}])", "added"))
          .set("post_processor", Json());
      seeds.push_back(file.dump());
    }
  }
  const Json families = *Json::read_file(test::own_data("families.json"));
  for (const Json& group : families.find("groups")->as_array()) {
    if (*group.find("model")->find("type") != Json("Unigram")) continue;
    for (const Json& item : group.find("cases")->as_array()) {
      Json file = *item.find("parts");
      file.set("added_tokens", Json::array())
          .set("post_processor", Json())
          .set("model", *Json::parse(R"({"type": "Unigram", "unk_id": 4, "byte_fallback": true, "vocab": [["a", -1],
            ["b", -2.5], ["ab", -1], ["▁", -3], ["<unk>", 0], ["<0x0A>", 0], ["世", -7]]})",
                                     "model"));
      seeds.push_back(file.dump());
    }
  }
  Random random(1);
  int loaded = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string json = seeds[random() % seeds.size()];
    for (std::size_t i = 0; i <= below(random, 4); ++i) mutate(json, kWords, random);
    const auto tokenizer = Tokenizer::parse(json, "mutated");
    if (!tokenizer.ok()) {
      EXPECT_FALSE(tokenizer.status().message().empty());
      continue;
    }
    ++loaded;
    const auto ids = tokenizer->encode("ab ba <x> a\n1,2 é世😀  b");
    if (ids.ok()) {
      EXPECT_EQ(find_invalid_utf8(tokenizer->decode(*ids)), std::string::npos);
    }
    tokenizer->decode(test::ids_of({0, 3, 3, 9, -1, 99, 5}), false);
  }
  EXPECT_GT(loaded, 200);
}

TEST(Mutation, TemplatesNeverCrash) {
  constexpr const char* kWords[] = {
      "{%",          "%}",       "{{",   "}}",     "{#",       "#}",        "-",
      "|",           "(",        ")",    "[",      "]",        "loop",      "for",
      "in",          "if",       "else", "endfor", "endif",    "macro",     "set",
      "namespace()", "range(9)", "'",    "\"",     "\\",       "recursive", "**",
      "//",          "%",        "~",    "is",     "not",      "1e9",       "9223372036854775807",
      "none",        ".",        ":",    ",",      "caller()", "messages"};
  const Json file = *Json::read_file(test::own_data("template_cases.json"));
  const Json::Array& cases = file.find("cases")->as_array();
  RenderOptions options;
  options.limits = {.max_steps = 20'000, .max_output_bytes = 100'000};
  Random random(2);
  int rendered = 0;
  for (int round = 0; round < 12'000; ++round) {
    std::string source = cases[random() % cases.size()].find("template")->as_string();
    for (std::size_t i = 0; i <= below(random, 3); ++i) mutate(source, kWords, random);
    const auto chat = ChatTemplate::parse(source, "mutated");
    if (!chat.ok()) continue;
    const auto text = chat->render_variables(*file.find("variables"), options);
    if (!text.ok()) continue;
    ++rendered;
    EXPECT_EQ(find_invalid_utf8(*text), std::string::npos);
  }
  EXPECT_GT(rendered, 500);
}

}  // namespace
}  // namespace tessera
