// Catches: differences from Hugging Face's library in tokenizers set up like those of published model families:
// DeepSeek (V2, V3), Mistral (v1, v3, tekken), Llama 3, Gemma, RoBERTa, T5, XLM-R.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/text/test_data.h"
#include "tessera/text/tokenizer.h"

namespace tessera {
namespace {

using test::values;

TEST(Families, EqualReference) {
  const Json file = *Json::read_file(test::own_data("families.json"));
  std::size_t texts = 0;
  for (const Json& group : file.find("groups")->as_array()) {
    for (const Json& item : group.find("cases")->as_array()) {
      const std::string& name = item.find("name")->as_string();
      Json document = *item.find("parts");
      document.set("model", *group.find("model"));
      const auto tokenizer = Tokenizer::parse(document.dump(), name);
      ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
      for (const Json& row : item.find("rows")->as_array()) {
        const std::string& text = row.find("text")->as_string();
        SCOPED_TRACE(name + ": " + Json(text).dump());
        const auto ids = tokenizer->encode(text, {.add_special_tokens = false});
        ASSERT_TRUE(ids.ok()) << ids.status().to_string();
        EXPECT_EQ(values(*ids), values(*row.find("ids")));
        EXPECT_EQ(values(*tokenizer->encode(text)), values(*row.find("ids_special")));
        EXPECT_EQ(tokenizer->decode(*ids), row.find("decoded")->as_string());
        EXPECT_EQ(tokenizer->decode(*ids, false), row.find("decoded_all")->as_string());
        ++texts;
      }
    }
  }
  EXPECT_GT(texts, 500u);
  fmt::print("{} texts equal\n", texts);
}

Result<Tokenizer> unigram(const std::string& vocab, const std::string& more) {
  return Tokenizer::parse(
      R"({"model": {"type": "Unigram", "vocab": )" + vocab + more + "}, \"decoder\": {\"type\": \"Fuse\"}}",
      "tokenizer.json");
}

TEST(Unigram, TakesTheGreatestSumOfScores) {
  // The possible splits of "abc" have these sums of scores: a, b, c: -9; ab, c: -4.5; a, bc: -4.
  const std::string vocab = R"([["?", -9], ["a", -3], ["b", -3], ["c", -3], ["ab", -1.5], ["bc", -1]])";
  const auto tokenizer = unigram(vocab, R"(, "unk_id": 0)");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  EXPECT_EQ(values(*tokenizer->encode("abc")), (std::vector<int>{1, 5}));
  EXPECT_EQ(values(*tokenizer->encode("abcab")), (std::vector<int>{1, 5, 4}));
  EXPECT_EQ(values(*tokenizer->encode("xéa")), (std::vector<int>{0, 1})) << "a run of unknown characters is one token";
}

TEST(Unigram, ACharacterWithoutATokenNeedsAnUnknownToken) {
  const auto tokenizer = unigram(R"([["a", -1]])", "");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  EXPECT_EQ(values(*tokenizer->encode("aa")), (std::vector<int>{0, 0}));
  EXPECT_THAT(tokenizer->encode("aé").status().message(), ::testing::HasSubstr("the character \"é\" has no token"));
}

}  // namespace
}  // namespace tessera
