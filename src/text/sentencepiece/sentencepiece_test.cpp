// Catches: ids that differ from those that libsentencepiece computes from the same file; spaces that are lost or
// inserted beside added tokens; files in the model's folder that are not read; and damaged files that crash the
// process.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/testing/scratch_dir.h"
#include "tessera/text/stream_decoder.h"
#include "tessera/text/test_data.h"
#include "tessera/text/tokenizer.h"
#include "tessera/text/unicode.h"

namespace tessera {
namespace {

using test::own_data;
using test::ScratchDir;
using test::values;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr EncodeOptions kPlain{.add_special_tokens = false};

// A folder whose tokenizer.model is a copy of a model in tests/data/text.
class ModelFolder {
 public:
  explicit ModelFolder(const std::string& name) { folder_.write("tokenizer.model", test::read_bytes(own_data(name))); }
  void write(const char* name, const std::string& text) const { folder_.write(name, text); }
  Result<Tokenizer> load() const { return Tokenizer::load(folder_.path()); }
  // Loads the tokenizer, or ends the test program with the error.
  Tokenizer tokenizer() const {
    Result<Tokenizer> out = load();
    if (!out.ok()) throw std::runtime_error(out.status().to_string());
    return *std::move(out);
  }

 private:
  ScratchDir folder_;
};

std::vector<std::string> tokens(const Tokenizer& tokenizer, std::string_view text,
                                const EncodeOptions& options = kPlain) {
  std::vector<std::string> out;
  const auto ids = *tokenizer.encode(text, options);
  for (const TokenId id : ids) out.emplace_back(*tokenizer.id_to_token(id));
  return out;
}

TEST(SentencePiece, IdsEqualTheLibrarys) {
  const Json file = *Json::read_file(own_data("families.json"));
  std::size_t texts = 0;
  for (const Json& item : file.find("sentencepiece")->as_array()) {
    const std::string& name = item.find("name")->as_string();
    const auto tokenizer = Tokenizer::load(own_data("spm_" + name + ".model"));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
    for (const Json& row : item.find("rows")->as_array()) {
      const std::string& text = row.find("text")->as_string();
      SCOPED_TRACE(name + ": " + Json(text).dump());
      const auto ids = tokenizer->encode(text, kPlain);
      ASSERT_TRUE(ids.ok()) << ids.status().to_string();
      EXPECT_EQ(values(*ids), values(*row.find("ids")));
      ++texts;
    }
  }
  EXPECT_GT(texts, 120u);
  fmt::print("{} texts equal\n", texts);
}

TEST(SentencePiece, BeginAndControlTokens) {
  const Tokenizer tokenizer = ModelFolder("spm_llama.model").tokenizer();
  const TokenId begin = *tokenizer.token_to_id("<s>");
  EXPECT_EQ(tokenizer.encode("")->front(), begin);
  EXPECT_EQ(tokenizer.encode("a")->front(), begin);
  EXPECT_NE(tokenizer.encode("a", kPlain)->front(), begin);
  EXPECT_TRUE(tokenizer.is_special(begin));
  EXPECT_TRUE(tokenizer.is_special(*tokenizer.token_to_id("[INST]")));
  EXPECT_FALSE(tokenizer.is_special(*tokenizer.token_to_id("a")));
  EXPECT_THAT(tokens(tokenizer, "</s>[INST]"), ElementsAre("</s>", "[INST]"));
  EXPECT_GT(tokenizer.encode("[INST]", {.add_special_tokens = false, .parse_special = false})->size(), 1u);
  EXPECT_FALSE(tokenizer.id_to_token(TokenId(static_cast<std::int32_t>(tokenizer.vocab_size()))).has_value());
}

TEST(SentencePiece, LegacyDecidesAboutTheSpaceBehindAddedTokens) {
  const ModelFolder folder("spm_llama.model");
  EXPECT_THAT(tokens(folder.tokenizer(), "a[INST]a"), ElementsAre("▁a", "[INST]", "▁a"));
  folder.write("tokenizer_config.json", R"({"legacy": false})");
  EXPECT_THAT(tokens(folder.tokenizer(), "a[INST]a"), ElementsAre("▁a", "[INST]", "a"));
  EXPECT_THAT(tokens(folder.tokenizer(), "[INST]a"), ElementsAre("[INST]", "a"));
  const ModelFolder gemma("spm_gemma.model");
  EXPECT_THAT(tokens(gemma.tokenizer(), "a"), ElementsAre("a"));
}

TEST(SentencePiece, DecodingTakesAwayTheSpaceThatEncodingAdded) {
  const Tokenizer llama = ModelFolder("spm_llama.model").tokenizer();
  const Tokenizer gemma = ModelFolder("spm_gemma.model").tokenizer();
  for (const char* text : {"", " ", "a", " a", "  a  b  ", "é漢😀\n\t", "\n\n"}) {
    EXPECT_EQ(llama.decode(*llama.encode(text)), text);
    EXPECT_EQ(gemma.decode(*gemma.encode(text)), text);
  }
  // A character of several byte tokens is returned in one piece.
  StreamDecoder stream(llama);
  std::string out;
  const auto ids = *llama.encode("x😀", kPlain);
  for (const TokenId id : ids) {
    const std::string piece = stream.push(id);
    EXPECT_EQ(find_invalid_utf8(piece), std::string::npos);
    out += piece;
  }
  EXPECT_EQ(out + stream.finish(), "x😀");
}

TEST(SentencePiece, ReadsTheFilesBesideTheModel) {
  const ModelFolder folder("spm_llama.model");
  const auto size = static_cast<int>(folder.tokenizer().vocab_size());
  folder.write("added_tokens.json",
               R"({"<pad>": )" + std::to_string(size) + R"(, "<x>": )" + std::to_string(size + 1) + "}");
  folder.write("tokenizer_config.json",
               R"({"add_bos_token": false, "add_eos_token": true, "eos_token": "<x>", "added_tokens_decoder": {")" +
                   std::to_string(size + 1) + R"(": {"content": "<x>", "special": true, "lstrip": true}}})");
  const Tokenizer tokenizer = folder.tokenizer();
  EXPECT_THAT(tokens(tokenizer, "a <x><pad>", {}), ElementsAre("▁a", "<x>", "<pad>", "<x>"));
  EXPECT_TRUE(tokenizer.is_special(TokenId(size + 1)));
  EXPECT_FALSE(tokenizer.is_special(TokenId(size)));
  EXPECT_EQ(tokenizer.vocab_size(), size + 2);
  // tokenizer.json has priority.
  folder.write("tokenizer.json", R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}})");
  EXPECT_EQ(folder.tokenizer().vocab_size(), 1);
}

TEST(SentencePiece, ErrorsNameFileAndField) {
  const ModelFolder folder("spm_llama.model");
  const std::pair<const char*, const char*> configs[] = {
      {R"({"eos_token": "<none>", "add_eos_token": true})", "eos_token: \"<none>\" is no token"},
      {R"({"legacy": 1})", "legacy: 1 is of type integer; accepted: true or false"},
      {R"({"added_tokens_decoder": []})", "added_tokens_decoder: []: accepted: an object"},
      {R"({"added_tokens_decoder": {"x": {"content": "y"}}})", "accepted: keys that are ids"},
      {R"({"added_tokens_decoder": {"7": 1}})", "added_tokens_decoder.7: 1: accepted: an object"},
      {R"({"added_tokens_decoder": {"1": {"content": "<new>"}}})", "has this id for token \"<s>\""},
      {R"({"added_tokens_decoder": {"-1": {"content": "y"}}})", "id: -1: accepted: an id from 0"},
  };
  for (const auto& [config, message] : configs) {
    folder.write("tokenizer_config.json", config);
    EXPECT_THAT(folder.load().status().message(), HasSubstr(message)) << config;
  }
  const ScratchDir empty;
  EXPECT_THAT(Tokenizer::load(empty.path()).status().message(), HasSubstr("has no tokenizer; accepted: a folder with"));
  for (const char* bytes : {"", "x", "\x0a\x7f", "{\"model\": {}}"}) {
    empty.write("tokenizer.model", bytes);
    const Status status = Tokenizer::load(empty.path()).status();
    EXPECT_THAT(status.message(), HasSubstr("tokenizer.model is not a SentencePiece model"));
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  }
}

TEST(SentencePiece, APieceThatBeginsWithNulIsRefused) {
  // The library throws when it builds its trie.
  constexpr std::string_view kBytes(
      "\x0a\x0e\x0a\x05\x3c\x75\x6e\x4b\x3e\x15\x00\x00\x00\x00\x18\x02\x0a\x0c\x0a\x03\x00\x00\x50\x30"
      "\x00\x2d\x93\x10\x18\x03\x0a\x0d\x0a\x04\x3c\x2f\x73\x3e\x15\x00\x3d\x00\x00\x18\x03\x0a\x0f\x0a"
      "\x06\x3c\x32\x78\x30\x41\x3e\x15\x00\x00\x00\x00\x18\x7d\x7d\x7d\x7d\x7d\x7d\x7d\x7d\x7d\x7d\x7d"
      "\x7d\x64\x65\x6e\x74\x69\xf3\x79\x18\x01\x20\x01\x28\x01",
      86);
  const ScratchDir folder;
  folder.write("tokenizer.model", std::string(kBytes));
  const Status status = Tokenizer::load(folder.path()).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("tokenizer.model is not a SentencePiece model"));
}

TEST(SentencePiece, LongTextsTakeAboutLinearTime) {
  // The text has no spaces, so it is merged as one piece. A quadratic merge would take minutes.
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += "hell";
  for (const char* name : {"spm_llama.model", "spm_unigram.model"}) {
    const Tokenizer tokenizer = ModelFolder(name).tokenizer();
    EXPECT_EQ(tokenizer.decode(*tokenizer.encode(text)), text);
  }
}

TEST(SentencePiece, DamagedFilesNeverCrash) {
  std::mt19937 random(5);
  int loaded = 0;
  const ScratchDir folder;
  for (const char* name : {"spm_llama.model", "spm_unigram.model"}) {
    const std::string whole = test::read_bytes(own_data(name));
    for (int round = 0; round < 400; ++round) {
      std::string bytes = whole;
      // The pieces fill most of the file, so every other round damages only the last 1500 bytes, which follow the
      // pieces.
      const std::size_t from = round % 2 == 0 ? 0 : bytes.size() - 1500;
      for (auto i = random() % 4 + 1; i > 0; --i) {
        const std::size_t at = from + random() % (bytes.size() - from);
        if (random() % 4 == 0) {
          bytes.erase(at, random() % 8);
        } else {
          bytes[at] = static_cast<char>(random() % 256);
        }
      }
      folder.write("tokenizer.model", bytes);
      const auto tokenizer = Tokenizer::load(folder.path());
      if (!tokenizer.ok()) continue;
      ++loaded;
      const auto ids = tokenizer->encode("the fox ﬁ①é  12 世😀\n<s>");
      if (ids.ok()) {
        EXPECT_EQ(find_invalid_utf8(tokenizer->decode(*ids)), std::string::npos);
      }
    }
  }
  EXPECT_GT(loaded, 50);
}

}  // namespace
}  // namespace tessera
