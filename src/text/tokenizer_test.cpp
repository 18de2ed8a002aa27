// Catches: differences from Hugging Face's library (`tokenizers` 0.23 computed the expected ids) in small tokenizers
// that together use every supported type; text that does not survive a round trip; options that affect each other; and
// races between threads.
#include "tessera/text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "tessera/text/test_data.h"
#include "tessera/text/test_tokenizers.h"
#include "tessera/text/unicode.h"

namespace tessera {
namespace {

using test::own_data;
using test::values;
using ::testing::HasSubstr;

constexpr EncodeOptions kTextAlone{.add_special_tokens = false};
constexpr EncodeOptions kAsText{.add_special_tokens = false, .parse_special = false};

const std::string& string_of(const Json& row, const char* key) { return row.find(key)->as_string(); }

// Returns the ids that `row` has under `key`. If `row` has no `key`, the expected ids are those under "ids".
std::vector<int> ids_under(const Json& row, const char* key) {
  const Json* ids = row.find(key);
  return values(*(ids != nullptr ? ids : row.find("ids")));
}

void expect_rows_equal(const Tokenizer& tokenizer, const Json::Array& rows, const std::string& name) {
  ASSERT_GT(rows.size(), 50u);
  for (const Json& row : rows) {
    const std::string& text = string_of(row, "text");
    SCOPED_TRACE(name + ": " + Json(text).dump());
    const auto ids = tokenizer.encode(text, kTextAlone);
    ASSERT_TRUE(ids.ok()) << ids.status().to_string();
    EXPECT_EQ(values(*ids), ids_under(row, "ids"));
    EXPECT_EQ(values(*tokenizer.encode(text)), ids_under(row, "ids_special"));
    EXPECT_EQ(values(*tokenizer.encode(text, kAsText)), ids_under(row, "ids_as_text"));
    const auto expected = test::ids_of(ids_under(row, "ids"));
    EXPECT_EQ(tokenizer.decode(expected), string_of(row, "decoded"));
    EXPECT_EQ(tokenizer.decode(expected, false), string_of(row, "decoded_all"));
  }
}

TEST(Tokenizer, ByteLevelEqualsReference) {
  const Json file = *Json::read_file(own_data("byte_level.json"));
  for (const Json& item : file.as_array()) {
    const std::string& name = string_of(item, "name");
    const Tokenizer tokenizer = test::load_case(item.find("tokenizer")->dump(), name);
    expect_rows_equal(tokenizer, item.find("rows")->as_array(), name);
    // Random ids include ids without a token, and their bytes contain ill-formed UTF-8 and split characters.
    for (const Json& row : item.find("random")->as_array()) {
      const auto ids = test::ids_of(values(*row.find("ids")));
      EXPECT_EQ(tokenizer.decode(ids), string_of(row, "decoded")) << name << " " << row.dump();
      EXPECT_EQ(tokenizer.decode(ids, false), string_of(row, "decoded_all")) << name << " " << row.dump();
    }
  }
}

TEST(Tokenizer, SentencePieceStyleEqualsReference) {
  for (const auto& [name, json, item] : test::sentencepiece_cases()) {
    const auto tokenizer = Tokenizer::parse(json, name);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
    expect_rows_equal(*tokenizer, item.find("rows")->as_array(), name);
  }
}

TEST(Tokenizer, EveryNormalizerAndPreTokenizerEqualsReference) {
  for (const auto& [name, json, item] : test::step_cases()) {
    const auto tokenizer = Tokenizer::parse(json, name);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
    for (const Json& row : item.find("rows")->as_array()) {
      const std::string& text = row.as_array()[0].as_string();
      const auto ids = tokenizer->encode(text, kTextAlone);
      ASSERT_TRUE(ids.ok()) << ids.status().to_string();
      EXPECT_EQ(values(*ids), values(row.as_array()[1])) << name << ": " << Json(text).dump();
    }
  }
}

TEST(Tokenizer, RandomUnicodeSurvivesARoundTrip) {
  std::mt19937 random(11);
  const Tokenizer byte_level = test::load_case(test::byte_level_json("llama3"), "llama3");
  const Tokenizer pieces = test::load_case(test::sentencepiece_cases()[0].json, "llama2");
  for (int round = 0; round < 500; ++round) {
    std::string text;
    const auto length = random() % 40;
    for (std::size_t i = 0; i < length; ++i) {
      constexpr char32_t kRanges[] = {0x80, 0x800, 0x3000, 0x10000, 0x110000};
      append_utf8(text, static_cast<char32_t>(random() % kRanges[random() % 5]));
    }
    EXPECT_EQ(byte_level.decode(*byte_level.encode(text, kAsText)), text);
    // The decoder of `pieces` replaces U+2581 by a space.
    std::string expected;
    for (std::size_t pos = 0; pos < text.size();) {
      const Utf8Step step = decode_utf8(text, pos);
      expected += step.code == U'▁' ? " " : text.substr(pos, step.length);
      pos += step.length;
    }
    EXPECT_EQ(pieces.decode(*pieces.encode(text, kAsText)), expected);
  }
}

TEST(Tokenizer, LongPiecesTakeAboutLinearTime) {
  // The text is one piece of 400 000 characters. A quadratic merge would take minutes.
  const Tokenizer tokenizer = test::load_case(test::sentencepiece_cases()[0].json, "llama2");
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += "hell";
  EXPECT_EQ(tokenizer.decode(*tokenizer.encode(text)), text);
}

TEST(Tokenizer, LooksTokensUpBothWays) {
  const Tokenizer tokenizer = test::load_case(test::byte_level_json("qwen"), "qwen");
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const auto token = tokenizer.id_to_token(TokenId(id));
    ASSERT_TRUE(token.has_value()) << id;
    EXPECT_EQ(tokenizer.token_to_id(*token), TokenId(id));
  }
  EXPECT_FALSE(tokenizer.id_to_token(TokenId(-1)).has_value());
  EXPECT_FALSE(tokenizer.id_to_token(TokenId(static_cast<std::int32_t>(tokenizer.vocab_size()))).has_value());
  EXPECT_FALSE(tokenizer.token_to_id("no such token").has_value());
  EXPECT_TRUE(tokenizer.is_special(*tokenizer.token_to_id("<|end|>")));
  EXPECT_FALSE(tokenizer.is_special(*tokenizer.token_to_id("<tool>")));
  EXPECT_FALSE(tokenizer.is_special(TokenId(0)));
}

TEST(Tokenizer, TextThatIsNoUtf8IsAnError) {
  const Tokenizer tokenizer = test::load_case(test::byte_level_json("qwen"), "qwen");
  for (const char* bad : {"ab\xff", "ab\xe4\xbd", "ab\xc0\x80", "ab\xed\xa0\x80", "ab\xf4\x90\x80\x80"}) {
    EXPECT_THAT(tokenizer.encode(bad).status().message(), HasSubstr("byte 2 of")) << bad;
  }
}

TEST(Tokenizer, ThreadsShareOneTokenizer) {
  const Tokenizer tokenizer = test::load_case(test::byte_level_json("qwen"), "qwen");
  const std::string text = "Hello there, the quick brown fox! 你好世界 12345 <|end|>";
  const auto expected = values(*test::load_case(test::byte_level_json("qwen"), "qwen").encode(text));
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (std::size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) wrong[t] += values(*tokenizer.encode(text)) == expected ? 0 : 1;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, (std::vector<int>{0, 0, 0, 0}));
}

}  // namespace
}  // namespace tessera
