// Catches: two texts that are joined in the wrong order, or with other tokens than the tokenizer's file says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "tessera/base/json.h"
#include "tessera/text/tokenizer.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Makes a tokenizer with the letters a and b, and the special tokens 2 "[C]" and 3 "[S]".
Result<Tokenizer> make(const std::string& post_processor) {
  Json file = *Json::parse(R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []},
    "added_tokens": [{"id": 2, "content": "[C]", "special": true}, {"id": 3, "content": "[S]", "special": true}]})",
                           "base");
  file.set("post_processor", *Json::parse(post_processor, "post_processor"));
  return Tokenizer::parse(file.dump(), "tokenizer.json");
}

std::vector<int> pair_of(const Tokenizer& tokenizer, bool special = true) {
  const Result<std::vector<TokenId>> ids = tokenizer.encode_pair("ab", "b", {.add_special_tokens = special});
  EXPECT_TRUE(ids.ok()) << ids.status().message();
  std::vector<int> out;
  if (ids.ok())
    for (const TokenId id : *ids) out.push_back(id.value());
  return out;
}

// Returns a post-processor whose template for two texts has the items `pair`.
std::string with_pair(const std::string& pair) {
  return R"({"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A"}}], "pair": )" + pair +
         R"(, "special_tokens": {"[C]": {"ids": [2]}, "[S]": {"ids": [3]}}})";
}

TEST(Pairs, AreJoinedAsThePostProcessorSays) {
  const Tokenizer bert = *make(R"({"type": "BertProcessing", "cls": ["[C]", 2], "sep": ["[S]", 3]})");
  EXPECT_THAT(pair_of(bert), ElementsAre(2, 0, 1, 3, 1, 3));
  EXPECT_THAT(pair_of(bert, /*special=*/false), ElementsAre(0, 1, 1));
  const Tokenizer roberta = *make(R"({"type": "RobertaProcessing", "cls": ["[C]", 2], "sep": ["[S]", 3]})");
  EXPECT_THAT(pair_of(roberta), ElementsAre(2, 0, 1, 3, 3, 1, 3));
  const std::string a = R"({"Sequence": {"id": "A"}})";
  const std::string b = R"({"Sequence": {"id": "B"}})";
  const std::string s = R"({"SpecialToken": {"id": "[S]"}})";
  const std::string c = R"({"SpecialToken": {"id": "[C]"}})";
  const std::string json = with_pair("[" + c + "," + a + "," + s + "," + b + "]");
  EXPECT_THAT(pair_of(*make(json)), ElementsAre(2, 0, 1, 3, 1));
  EXPECT_THAT(pair_of(*make(R"({"type": "Sequence", "processors": [{"type": "ByteLevel"}, )" + json + "]}")),
              ElementsAre(2, 0, 1, 3, 1));
  EXPECT_THAT(pair_of(*make(with_pair("[" + a + "," + b + "]"))), ElementsAre(0, 1, 1));
  for (const std::string& other : {std::string("null"), "[" + a + "]", "[" + b + "," + a + "]"})
    EXPECT_FALSE(make(with_pair(other))->joins_pairs()) << other;
}

TEST(Pairs, AreRefusedWithoutAJoiningProcessor) {
  const Tokenizer tokenizer = *make(R"({"type": "ByteLevel"})");
  EXPECT_FALSE(tokenizer.joins_pairs());
  EXPECT_EQ(tokenizer.encode_pair("a", "b").status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(make(R"({"type": "RobertaProcessing", "cls": ["[C]", 2], "sep": ["[S]", 77]})").status().message(),
              HasSubstr("id 77 has no token"));
  const std::string unknown = with_pair(R"([{"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "[Q]"}}])");
  EXPECT_THAT(make(unknown).status().message(), HasSubstr("special_tokens.[Q].ids"));
}

// Under AddressSanitizer, this test also catches a leak of the first text's ids.
TEST(Pairs, AreRefusedIfEitherTextIsNotUtf8) {
  const Tokenizer tokenizer = *make(R"({"type": "BertProcessing", "cls": ["[C]", 2], "sep": ["[S]", 3]})");
  for (const auto& [first, second] : {std::pair{"\xff", "b"}, std::pair{"a", "\xff"}})
    EXPECT_THAT(tokenizer.encode_pair(first, second).status().message(), HasSubstr("not UTF-8: byte 0 of 1"));
}

}  // namespace
}  // namespace tessera
