// Catches: a stream that returns half a character, that loses or doubles text where one id ends and the next begins, or
// whose text differs from that of decoding all ids at once.
#include "tessera/text/stream_decoder.h"

#include <gtest/gtest.h>

#include <random>

#include "tessera/text/test_data.h"
#include "tessera/text/test_tokenizers.h"
#include "tessera/text/tokenizer.h"
#include "tessera/text/unicode.h"

namespace tessera {
namespace {

std::vector<test::TokenizerCase> all_tokenizers() {
  std::vector<test::TokenizerCase> out = test::sentencepiece_cases();
  out.push_back({"qwen", test::byte_level_json("qwen"), Json()});
  return out;
}

TEST(StreamDecoder, PiecesAreUtf8AndTogetherEqualDecode) {
  std::mt19937 random(5);
  for (const auto& [name, json, item] : all_tokenizers()) {
    const Tokenizer tokenizer = test::load_case(json, name);
    StreamDecoder stream(tokenizer);  // reused: finish() starts a new text
    for (int round = 0; round < 300; ++round) {
      std::vector<TokenId> ids;
      for (std::size_t i = 0; i < 1 + random() % 20; ++i) {
        // About two thirds of the ids are tokens of single bytes, which split characters. A few ids have no token.
        const auto range = random() % 3 == 0 ? tokenizer.vocab_size() + 2 : std::int64_t{260};
        ids.emplace_back(static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(range)));
      }
      std::string together;
      for (const TokenId id : ids) {
        const std::string piece = stream.push(id);
        EXPECT_EQ(find_invalid_utf8(piece), std::string::npos) << name;
        together += piece;
      }
      const std::string rest = stream.finish();
      EXPECT_EQ(find_invalid_utf8(rest), std::string::npos) << name;
      EXPECT_EQ(together + rest, tokenizer.decode(ids)) << name;
    }
  }
}

TEST(StreamDecoder, EveryCutOfOneTextGivesTheText) {
  const std::string text = "héllo 世界 👩‍👩‍👧 end";
  for (const auto& [name, json, item] : all_tokenizers()) {
    if (name != "llama2" && name != "qwen") continue;  // the others cannot represent every character
    const Tokenizer tokenizer = test::load_case(json, name);
    const auto ids = *tokenizer.encode(text, {.add_special_tokens = false});
    StreamDecoder stream(tokenizer);
    std::string together;
    for (const TokenId id : ids) together += stream.push(id);
    EXPECT_EQ(together + stream.finish(), text) << name;
  }
}

TEST(StreamDecoder, HoldsBackOnlyTheUnfinishedCharacter) {
  const Tokenizer tokenizer = test::load_case(test::sentencepiece_cases()[0].json, "llama2");
  const auto byte = [&](const char* token) { return *tokenizer.token_to_id(token); };
  StreamDecoder stream(tokenizer);
  EXPECT_EQ(stream.push(byte("<0xE4>")), "");
  EXPECT_EQ(stream.push(byte("<0xBD>")), "");
  EXPECT_EQ(stream.push(byte("<0xA0>")), "你");
  EXPECT_EQ(stream.push(byte("<0xE4>")), "");
  EXPECT_EQ(stream.push(byte("<0x41>")), "\uFFFDA");
  EXPECT_EQ(stream.push(byte("<0xE4>")), "");
  EXPECT_EQ(stream.finish(), "\uFFFD");
  EXPECT_EQ(stream.finish(), "");
}

TEST(StreamDecoder, OutlivesAMoveOfTheTokenizer) {
  Tokenizer first = test::load_case(test::byte_level_json("qwen"), "qwen");
  const auto ids = *first.encode("hello <|end|>world");
  StreamDecoder stream(first, false);
  const Tokenizer second = std::move(first);
  std::string text;
  for (const TokenId id : ids) text += stream.push(id);
  EXPECT_EQ(text + stream.finish(), "hello <|end|>world");
}

}  // namespace
}  // namespace tessera
