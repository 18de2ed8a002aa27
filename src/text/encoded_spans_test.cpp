// Tests a cache that keeps the token ids of texts. Catches: ids that were computed for another text or with other
// encoding options; memory beyond the limit; a text that is dropped before texts that were used less recently; and a
// conversation that gets other ids with the cache than without it.
#include "tessera/text/encoded_spans.h"

#include <gtest/gtest.h>

#include <thread>

#include "tessera/text/test_tokenizers.h"
#include "tessera/text/tokenizer.h"

namespace tessera {
namespace {

std::string text_of(char c, std::size_t size = 1000) { return std::string(size, c); }
std::vector<TokenId> ids_of(std::int32_t id, std::size_t count = 10) {
  return std::vector<TokenId>(count, TokenId(id));
}

TEST(EncodedSpans, FindOnlyTheSameTextAndKind) {
  EncodedSpans spans(1 << 20);
  spans.add(text_of('a'), 0, ids_of(1));
  spans.add(text_of('b'), 0, ids_of(2));
  spans.add(text_of('a'), 1, ids_of(3));
  EXPECT_EQ(*spans.find(text_of('a'), 0), ids_of(1));
  EXPECT_EQ(*spans.find(text_of('b'), 0), ids_of(2));
  EXPECT_EQ(*spans.find(text_of('a'), 1), ids_of(3));
  EXPECT_EQ(spans.find(text_of('a'), 2), nullptr);
  EXPECT_EQ(spans.find(text_of('a', 999), 0), nullptr);
}

TEST(EncodedSpans, ShortAndVeryLongTextsAreNotKept) {
  EncodedSpans spans(80'000);
  spans.add(text_of('a', EncodedSpans::kLeastBytes - 1), 0, ids_of(1));
  spans.add(text_of('b', 80'000 / EncodedSpans::kMostShare), 0, ids_of(1));
  EXPECT_EQ(spans.bytes(), 0U);
  spans.add(text_of('c', EncodedSpans::kLeastBytes), 0, ids_of(1));
  EXPECT_GT(spans.bytes(), EncodedSpans::kLeastBytes);
}

TEST(EncodedSpans, ClearDropsAllTexts) {
  EncodedSpans spans(1 << 20);
  spans.add(text_of('a'), 0, ids_of(1));
  spans.clear();
  EXPECT_EQ(spans.find(text_of('a'), 0), nullptr);
  EXPECT_EQ(spans.bytes(), 0U);
  spans.add(text_of('a'), 0, ids_of(2));
  EXPECT_EQ(*spans.find(text_of('a'), 0), ids_of(2));
}

TEST(EncodedSpans, TheLeastRecentlyUsedTextsAreDropped) {
  EncodedSpans spans(20'000);
  for (char c = 'a'; c <= 'z'; ++c) {
    spans.add(text_of(c), 0, ids_of(c));
    EXPECT_NE(spans.find(text_of('a'), 0), nullptr) << c;
    EXPECT_LE(spans.bytes(), 20'000U);
  }
  EXPECT_EQ(spans.find(text_of('b'), 0), nullptr);
  EXPECT_NE(spans.find(text_of('z'), 0), nullptr);
}

TEST(EncodedSpans, ConversationsHaveTheIdsOfPlainEncoding) {
  const Tokenizer tokenizer = test::load_case(test::byte_level_json("qwen"), "qwen");
  EncodedSpans spans(1 << 20);
  std::string conversation;
  for (int turn = 0; turn < 6; ++turn) {
    std::string message = "turn " + std::to_string(turn);
    for (int i = 0; i < 60; ++i) message += " it's 12 é  " + std::to_string(i * turn) + "\n\t";
    conversation += "<|begin|>user\n" + message + "<|end|>\n";
    for (const bool special : {true, false}) {
      const EncodeOptions plain{.add_special_tokens = false, .parse_special = special};
      EncodeOptions kept = plain;
      kept.spans = &spans;
      EXPECT_EQ(*tokenizer.encode(conversation, kept), *tokenizer.encode(conversation, plain)) << turn;
    }
  }
  EXPECT_GT(spans.bytes(), 0U);
}

TEST(EncodedSpans, EncodingUsesTheIdsThatAreKept) {
  const Tokenizer tokenizer = test::load_case(test::byte_level_json("qwen"), "qwen");
  EncodedSpans spans(1 << 20);
  const std::string message = text_of('a');
  const EncodeOptions options{.add_special_tokens = false, .parse_special = true, .spans = &spans};
  spans.add(message, 2, ids_of(1));  // kind 2: the text is not at the start, and special tokens are parsed
  std::vector<TokenId> expected = *tokenizer.encode("<|begin|>");
  expected.insert(expected.end(), 10, TokenId(1));
  EXPECT_EQ(*tokenizer.encode("<|begin|>" + message, options), expected);
}

TEST(EncodedSpans, TextsAtTheStartAreKeptApart) {
  for (const test::TokenizerCase& each : test::sentencepiece_cases()) {
    const Tokenizer tokenizer = test::load_case(each.json, each.name);
    EncodedSpans spans(1 << 20);
    std::string message;
    while (message.size() < EncodedSpans::kLeastBytes) message += "ab b a";
    for (const std::string& text : {message, "<s>" + message, message + "<s>" + message}) {
      const Result<std::vector<TokenId>> plain = tokenizer.encode(text);
      const Result<std::vector<TokenId>> kept = tokenizer.encode(text, {.spans = &spans});
      ASSERT_EQ(plain.ok(), kept.ok()) << each.name;
      if (plain.ok()) {
        EXPECT_EQ(*kept, *plain) << each.name;
      }
    }
  }
}

TEST(EncodedSpans, ThreadsMayShareThem) {
  EncodedSpans spans(30'000);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (std::size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 2000; ++i) {
        const char c = static_cast<char>('a' + (i * (static_cast<int>(t) + 1)) % 26);
        spans.add(text_of(c), 0, ids_of(c));
        const EncodedSpans::Ids ids = spans.find(text_of(c), 0);
        if (ids != nullptr && *ids != ids_of(c)) ++wrong[t];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
  EXPECT_LE(spans.bytes(), 30'000U);
}

}  // namespace
}  // namespace tessera
