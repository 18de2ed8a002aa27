// Catches: a tokenizer, made from lists, that computes other ids than the library for which the model was made; and
// wrong lists that are accepted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tessera/text/byte_alphabet.h"
#include "tessera/text/lists/token_lists.h"
#include "tessera/text/tokenizer.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Holds a vocabulary: the symbols of all bytes, then "he", "ll", "hell" and two control tokens.
struct Words {
  std::vector<std::string> texts;
  TokenLists lists;

  Words() {
    for (int byte = 0; byte < 256; ++byte) {
      texts.emplace_back();
      append_symbols(texts.back(), std::string(1, static_cast<char>(byte)));
    }
    for (const char* word : {"he", "ll", "hell", "<s>", "<|end|>"}) texts.emplace_back(word);
    lists.file = "m.gguf";
    lists.model = "gpt2";
    lists.pre = "qwen2";
    lists.tokens.assign(texts.begin(), texts.end());
    lists.kinds.assign(texts.size(), TokenKind::kNormal);
    lists.kinds[259] = lists.kinds[260] = TokenKind::kControl;
    lists.merges = {"h e", "l l", "he ll"};
    lists.bos = TokenId(259);
  }
};

std::vector<int> ids_of(const Tokenizer& tokenizer, std::string_view text, const EncodeOptions& options = {}) {
  std::vector<int> ids;
  const auto encoded = tokenizer.encode(text, options);
  EXPECT_TRUE(encoded.ok()) << encoded.status().to_string();
  for (const TokenId id : *encoded) ids.push_back(id.value());
  return ids;
}

void expect_error(const TokenLists& lists, StatusCode code, const std::string& text) {
  const Status status = Tokenizer::create(lists).status();
  EXPECT_EQ(status.code(), code);
  EXPECT_THAT(status.message(), HasSubstr(text));
  EXPECT_THAT(status.message(), HasSubstr("m.gguf"));
}

TEST(ListTokenizer, MergesAndFindsControlTokens) {
  const Words words;
  const auto tokenizer = Tokenizer::create(words.lists);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  EXPECT_THAT(ids_of(*tokenizer, "hello"), ElementsAre(258, 'o'));
  EXPECT_THAT(ids_of(*tokenizer, "o<|end|>"), ElementsAre('o', 260));
  EXPECT_EQ(ids_of(*tokenizer, "<|end|>", {.parse_special = false}).size(), 7U);
  EXPECT_EQ(tokenizer->decode(*tokenizer->encode("hell no\n")), "hell no\n");
  EXPECT_TRUE(tokenizer->is_special(TokenId(260)));
  EXPECT_EQ(tokenizer->vocab_size(), 261);
}

TEST(ListTokenizer, FileDecidesAboutTheFirstToken) {
  Words words;
  words.lists.add_bos = true;
  EXPECT_THAT(ids_of(*Tokenizer::create(words.lists), "o"), ElementsAre(259, 'o'));
  words.lists.add_bos = std::nullopt;
  words.lists.pre = "llama-bpe";
  EXPECT_THAT(ids_of(*Tokenizer::create(words.lists), "o"), ElementsAre(259, 'o'));
  words.lists.add_bos = false;
  words.lists.add_eos = true;
  words.lists.eos = TokenId(260);
  EXPECT_THAT(ids_of(*Tokenizer::create(words.lists), "o"), ElementsAre('o', 260));
}

TEST(ListTokenizer, EveryKnownNameCuts) {
  Words words;
  for (const char* name :
       {"qwen2", "qwen35", "llama-bpe", "glm4", "gpt-4o", "tekken", "deepseek-v3", "deepseek-coder", "gpt-2", "smollm",
        "stablelm2", "deepseek-llm", "falcon", "default", "", "seed-coder", "viking", "bloom"}) {
    words.lists.pre = name;
    words.lists.add_bos = false;
    const auto tokenizer = Tokenizer::create(words.lists);
    ASSERT_TRUE(tokenizer.ok()) << name << ": " << tokenizer.status().to_string();
    const std::string text = "I'll say 12345 times: «hello»\n\n  well…";
    EXPECT_EQ(tokenizer->decode(*tokenizer->encode(text)), text) << name;
  }
}

// Merges join all neighbours of each text, so tokens end exactly where the pre-tokenizer cuts.
TEST(ListTokenizer, NamesCutWhereTheirModelsDo) {
  const auto pieces = [](const char* pre, const std::vector<std::string>& merges, std::string_view text) {
    Words words;
    std::vector<std::string> joined;
    for (const std::string& merge : merges) {
      joined.push_back(merge);
      joined.back().erase(merge.find(' '), 1);
    }
    words.lists.pre = pre;
    words.lists.add_bos = false;
    words.lists.merges.assign(merges.begin(), merges.end());
    words.lists.tokens.insert(words.lists.tokens.end(), joined.begin(), joined.end());
    words.lists.kinds.resize(words.lists.tokens.size(), TokenKind::kNormal);
    return ids_of(*Tokenizer::create(words.lists), text).size();
  };
  const std::vector<std::string> digits = {"1 2", "12 3", "123 4"};
  EXPECT_EQ(pieces("deepseek-llm", digits, "1234"), 1U);
  EXPECT_EQ(pieces("default", digits, "1234"), 2U);
  EXPECT_EQ(pieces("", digits, "1234"), 2U) << "a file without the key";
  EXPECT_EQ(pieces("falcon", digits, "1234"), 2U);
  EXPECT_EQ(pieces("viking", digits, "1234"), 4U);
  EXPECT_EQ(pieces("gpt-2", digits, "1234"), 1U);
  EXPECT_EQ(pieces("gpt-2", {"Ċ Ċ"}, "\n\n"), 1U);
  EXPECT_EQ(pieces("deepseek-llm", {"Ċ Ċ"}, "\n\n"), 2U);
  EXPECT_EQ(pieces("deepseek-llm", {"Ġ a", "Ġa a"}, " aa"), 1U);
  EXPECT_EQ(pieces("deepseek-llm", {"a !"}, "a!"), 2U);
  EXPECT_EQ(pieces("default", {"$ a"}, "$a"), 2U);
  EXPECT_EQ(pieces("bloom", {"a !"}, "a!"), 2U);
  EXPECT_EQ(pieces("bloom", {"a $"}, "a$"), 1U);
}

TEST(ListTokenizer, UnknownNamesAreErrors) {
  Words words;
  words.lists.pre = "kimi-k2";
  expect_error(words.lists, StatusCode::kUnimplemented, "tokenizer.ggml.pre is \"kimi-k2\"; accepted: qwen2");
  words.lists.model = "rwkv";
  expect_error(words.lists, StatusCode::kUnimplemented,
               "tokenizer.ggml.model is \"rwkv\"; accepted: gpt2, llama, gemma4");
}

TEST(ListTokenizer, ListsThatContradictAreErrors) {
  const auto with = [](auto change, const std::string& text) {
    Words words;
    change(words.lists);
    expect_error(words.lists, StatusCode::kInvalidArgument, text);
  };
  with([](TokenLists& l) { l.tokens.clear(); }, "0 tokens");
  with([](TokenLists& l) { l.kinds.pop_back(); }, "260 entries; accepted: 261");
  with([](TokenLists& l) { l.tokens[5] = "\xff"; }, "tokenizer.ggml.tokens[5] is no UTF-8");
  with([](TokenLists& l) { l.tokens[5] = l.tokens[6]; }, "model.vocab");
  with([](TokenLists& l) { l.merges[1] = "ll"; }, "tokenizer.ggml.merges[1] is \"ll\"");
  with([](TokenLists& l) { l.merges[1] = "ll zz"; }, "\"zz\" is not in model.vocab");
  with([](TokenLists& l) { l.bos = TokenId(261); }, "tokenizer.ggml.bos_token_id is 261; accepted: 0 to 260");
  with([](TokenLists& l) { l.model = "llama"; }, "tokenizer.ggml.scores has 0 entries; accepted: 261");
}

// SentencePiece first joins the two neighbours whose joined piece has the best score. Text without a piece becomes byte
// tokens.
TEST(ListTokenizer, PiecesJoinByScore) {
  TokenLists lists;
  lists.file = "m.gguf";
  lists.model = "llama";
  lists.tokens = {"<unk>", "<s>", "</s>", "▁", "a", "b", "ab", "▁a"};
  lists.kinds = {TokenKind::kUnknown, TokenKind::kControl, TokenKind::kControl};
  lists.kinds.resize(8, TokenKind::kNormal);
  lists.scores = {0, 0, 0, -4, -5, -6, -1, -2};
  std::vector<std::string> bytes;
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", static_cast<unsigned>(byte));
    bytes.emplace_back(name);
  }
  for (const std::string& name : bytes) {
    lists.tokens.push_back(name);
    lists.kinds.push_back(TokenKind::kByte);
    lists.scores.push_back(0);
  }
  lists.bos = TokenId(1);
  const auto tokenizer = Tokenizer::create(lists);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  EXPECT_THAT(ids_of(*tokenizer, "ab"), ElementsAre(1, 3, 6));
  EXPECT_THAT(ids_of(*tokenizer, "a\n"), ElementsAre(1, 7, 8 + '\n'));
  EXPECT_EQ(tokenizer->decode(*tokenizer->encode("a b\n")), "a b\n");
  lists.add_space_prefix = false;
  lists.add_bos = false;
  EXPECT_THAT(ids_of(*Tokenizer::create(lists), "ab</s>"), ElementsAre(6, 2));
}

}  // namespace
}  // namespace tessera
