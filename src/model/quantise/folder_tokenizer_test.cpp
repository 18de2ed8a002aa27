// Catches: a tokenizer that splits texts differently after it was written to a GGUF file; end tokens that are lost.
#include "tessera/model/quantise/folder_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tessera/base/testing/scratch_dir.h"
#include "tessera/model/family.h"
#include "tessera/model/gguf/gguf_texts.h"
#include "tessera/model/gguf/gguf_writer.h"
#include "tessera/text/test_data.h"
#include "tessera/text/test_tokenizers.h"
#include "tessera/text/tokenizer.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string kDemo = std::string(TESSERA_SOURCE_DIR) + "/models/demo";

struct WrittenTokenizer {
  test::ScratchDir dir{};
  std::vector<std::string> notes{};
  std::string path() const { return dir.path() + "/m.gguf"; }
};

Status write_tokenizer_of(const std::string& folder, std::int64_t vocab_size, WrittenTokenizer& written,
                          bool gemma4 = false) {
  ModelConfig config;
  config.vocab_size = vocab_size;
  if (gemma4) config.gemma4 = Gemma4Config{};
  GgufMetadata metadata;
  metadata.set_string("general.architecture", "qwen3");
  TRY(write_tokenizer(folder, config, metadata, written.notes));
  return write_gguf(written.path(), metadata, {}, {});
}

TEST(FolderTokenizer, FileHasTokensTemplateAndSettings) {
  WrittenTokenizer written;
  const Status status = write_tokenizer_of(kDemo, 2048, written);
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_THAT(written.notes, IsEmpty());
  const GgufModel model = *GgufModel::open(written.path());
  const TokenizerConfig texts = *gguf_tokenizer_config(model);
  const TokenizerConfig own = *TokenizerConfig::load(kDemo);
  EXPECT_EQ(*texts.find_template("default"), *own.find_template("default"));
  EXPECT_EQ(texts.eos_token, own.eos_token);
  EXPECT_EQ(texts.pad_token, own.pad_token);
  EXPECT_EQ(*model.string("tokenizer.ggml.pre"), "qwen2");
  const GenerationConfig generation = *gguf_generation_config(model);
  const GenerationConfig wanted = *GenerationConfig::read(kDemo);
  EXPECT_EQ(generation.eos_token_ids, wanted.eos_token_ids);
  // Every id must still have the same text.
  const Tokenizer listed = *Tokenizer::create(*gguf_token_lists(model));
  const Tokenizer before = *Tokenizer::load(kDemo);
  for (int id = 0; id < 2048; ++id) {
    EXPECT_EQ(listed.id_to_token(TokenId(id)), before.id_to_token(TokenId(id))) << id;
    EXPECT_EQ(listed.is_special(TokenId(id)), before.is_special(TokenId(id))) << id;
  }
}

TEST(FolderTokenizer, TokensBeyondTheEmbeddingsAreLeftOut) {
  WrittenTokenizer fewer;
  ASSERT_FALSE(write_tokenizer_of(kDemo, 2040, fewer).ok()) << "a text needs tokens that are left out";
  WrittenTokenizer more;
  ASSERT_TRUE(write_tokenizer_of(kDemo, 2064, more).ok());
  const GgufModel model = *GgufModel::open(more.path());
  EXPECT_EQ(model.find("tokenizer.ggml.tokens")->strings()->at(2050), "[PAD2050]");
  EXPECT_EQ(model.find("tokenizer.ggml.token_type")->integers()->at(2050), 5);
}

TEST(FolderTokenizer, FolderWithoutTokenizerIsNoted) {
  const test::ScratchDir empty;
  WrittenTokenizer written;
  ASSERT_TRUE(write_tokenizer_of(empty.path(), 16, written).ok());
  EXPECT_THAT(written.notes, ElementsAre(HasSubstr("has no tokenizer")));
  EXPECT_EQ(gguf_token_lists(*GgufModel::open(written.path())).status().code(), StatusCode::kNotFound);
}

// The folder has no tokenizer.model, so SentencePiece's scores are computed from the order of merges.
TEST(FolderTokenizer, ScoresFollowFromTheOrderOfMerges) {
  const test::TokenizerCase item = test::sentencepiece_cases().front();
  const test::ScratchDir folder;
  folder.write("tokenizer.json", item.json);
  const Tokenizer own = *Tokenizer::load(folder.path());
  WrittenTokenizer written;
  const Status status = write_tokenizer_of(folder.path(), own.vocab_size(), written);
  ASSERT_TRUE(status.ok()) << status.to_string();
  const Tokenizer listed = *Tokenizer::create(*gguf_token_lists(*GgufModel::open(written.path())));
  for (const char* text : {"Grüße aus Zürich: 3 × 4 = 12", "  leading and  double spaces\n", "the other thing"})
    EXPECT_EQ(*listed.encode(text), *own.encode(text)) << text;
}

// Gemma 4's tokenizer has no space before a text, and the file lists its merges.
TEST(FolderTokenizer, MergesOfGemma4AreWritten) {
  Json json = *Json::parse(test::sentencepiece_cases().front().json, "tokenizer.json");
  const Json replace = *Json::parse(R"({"type": "Replace", "pattern": {"String": " "}, "content": "▁"})", "step");
  json.set("normalizer", replace);
  json.set("decoder", *Json::parse(R"({"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"},
      "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]})",
                                   "decoder"));
  json.set("added_tokens", *Json::parse(R"([{"id": 0, "content": "<unk>", "special": true},
      {"id": 1, "content": "<s>", "special": true}, {"id": 589, "content": "<|channel>", "special": true},
      {"id": 590, "content": "<turn|>", "special": true}])",
                                        "added_tokens"));
  const test::ScratchDir folder;
  folder.write("tokenizer.json", json.dump());
  const Tokenizer own = *Tokenizer::load(folder.path());
  WrittenTokenizer written;
  const Status status = write_tokenizer_of(folder.path(), own.vocab_size(), written, /*gemma4=*/true);
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_THAT(written.notes, IsEmpty());
  const GgufModel model = *GgufModel::open(written.path());
  EXPECT_EQ(*model.string("tokenizer.ggml.model"), "gemma4");
  EXPECT_EQ(*model.optional_boolean("tokenizer.ggml.add_space_prefix"), false);
  EXPECT_EQ(*model.optional_boolean("tokenizer.ggml.add_bos_token"), true);
  EXPECT_EQ(model.find("tokenizer.ggml.merges")->strings()->size(),
            json.find("model")->find("merges")->as_array().size());
  const std::vector<std::int64_t> kinds = *model.find("tokenizer.ggml.token_type")->integers();
  EXPECT_EQ(kinds[0], 3);
  EXPECT_EQ(kinds[589], 4) << "as llama.cpp's converter marks it";
  EXPECT_EQ(kinds[590], 3);
  const Tokenizer listed = *Tokenizer::create(*gguf_token_lists(model));
  for (const char* text : {"Grüße aus Zürich: 3 × 4 = 12", "  leading and  double spaces\n", "a<turn|>b<|channel>c"})
    EXPECT_EQ(*listed.encode(text), *own.encode(text)) << text;
  EXPECT_EQ(listed.decode(*own.encode("  ü\n")), "  ü\n");
  EXPECT_EQ(listed.decode(*own.encode("a<turn|>b<|channel>c")), "ab<|channel>c");
}

// A published tokenizer. If the shared data contain its file, the test writes the tokenizer into a GGUF file, reads it
// back, and compares it with the original.
struct Published {
  const char* file;
  std::int64_t size;
  const char* pre;
};

class PublishedTokenizers : public ::testing::TestWithParam<Published> {};

TEST_P(PublishedTokenizers, AreReadBackAsTheyWere) {
  const std::string name = std::string("tokenizers/") + GetParam().file;
  const bool pieces = name.ends_with(".model");
  const std::string source = pieces ? test::shared_data(name) : test::unpacked_shared_data(name);
  if (source.empty()) GTEST_SKIP() << "no shared data: " << name;
  const test::ScratchDir folder;
  folder.write(pieces ? "tokenizer.model" : "tokenizer.json", test::read_bytes(source));
  WrittenTokenizer written;
  const Status status = write_tokenizer_of(folder.path(), GetParam().size, written);
  ASSERT_TRUE(status.ok()) << status.to_string();
  const GgufModel model = *GgufModel::open(written.path());
  EXPECT_EQ(*model.string("tokenizer.ggml.pre"), GetParam().pre);
  const Tokenizer listed = *Tokenizer::create(*gguf_token_lists(model));
  const Tokenizer own = *Tokenizer::load(folder.path());
  for (const char* text : {"Grüße aus Zürich: 3 × 4 = 12", "  leading and  double spaces\n", "日本語のテキスト 123456"})
    EXPECT_EQ(*listed.encode(text), *own.encode(text)) << text;
}

INSTANTIATE_TEST_SUITE_P(Shared, PublishedTokenizers,
                         ::testing::Values(Published{"gpt2.json", 50257, "gpt-2"},
                                           Published{"llama3.1.json", 128256, "llama-bpe"},
                                           Published{"qwen3.json", 151936, "qwen2"},
                                           Published{"llama2.model", 32000, "default"},
                                           Published{"mistral-v3.model", 32768, "default"}),
                         [](const auto& published) {
                           std::string name = published.param.file;
                           std::erase_if(name, [](char c) { return c == '.' || c == '-'; });
                           return name;
                         });

}  // namespace
}  // namespace tessera
