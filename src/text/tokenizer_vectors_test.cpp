// Catches differences from the reference tokenizers of real models on real multilingual text: a split pattern that is
// read differently; a merge in the wrong order; a wrong Unicode normal form; wrong spaces at added tokens; a decoder
// that loses text. Also prints the encoding speed. The tests are skipped without the directory of shared data
// (test_data.h).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <random>
#include <sstream>

#include "tessera/text/stream_decoder.h"
#include "tessera/text/test_data.h"
#include "tessera/text/tokenizer.h"
#include "tessera/text/unicode.h"

namespace tessera {
namespace {

using test::shared_data;
using test::unpacked_shared_data;
using test::values;

constexpr EncodeOptions kVectorOptions{.add_special_tokens = false};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Returns a shared tokenizer's path; "" if it does not exist.
std::string tokenizer_file(const std::string& name) {
  const std::string plain = shared_data("tokenizers/" + name);
  return plain.empty() ? unpacked_shared_data("tokenizers/" + name) : plain;
}

// Reads the texts of the file. A line with the mark follows each text.
std::vector<std::string> read_texts(const std::string& path) {
  const std::string mark = "\n__ggml_vocab_test__\n";
  const std::string all = test::read_bytes(path);
  std::vector<std::string> out;
  for (std::size_t pos = 0; pos < all.size();) {
    const std::size_t end = all.find(mark, pos);
    if (end == std::string::npos) break;
    out.push_back(all.substr(pos, end - pos));
    pos = end + mark.size();
  }
  return out;
}

std::vector<std::vector<int>> read_id_lines(const std::string& path) {
  std::istringstream file(test::read_bytes(path));
  std::vector<std::vector<int>> out;
  for (std::string line; std::getline(file, line);) {
    std::istringstream numbers(line);
    out.emplace_back(std::istream_iterator<int>(numbers), std::istream_iterator<int>());
  }
  return out;
}

struct VectorCase {
  const char* vectors;    // path under tokenizers/vectors/
  const char* tokenizer;  // path under tokenizers/, plain or packed
};

class LineVectors : public ::testing::TestWithParam<VectorCase> {};

TEST_P(LineVectors, AreEqual) {
  const std::string path = tokenizer_file(GetParam().tokenizer);
  if (path.empty()) GTEST_SKIP() << "no shared data (or no xz): " << GetParam().tokenizer;
  const Result<Tokenizer> loaded = Tokenizer::load(path);
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  const Tokenizer& tokenizer = *loaded;
  const std::string base = shared_data("tokenizers/vectors") + "/ggml-vocab-" + GetParam().vectors + ".gguf";
  const auto texts = read_texts(base + ".inp");
  const auto expected = read_id_lines(base + ".out");
  ASSERT_EQ(texts.size(), expected.size());
  ASSERT_GT(texts.size(), 40u);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const auto ids = tokenizer.encode(texts[i], kVectorOptions);
    ASSERT_TRUE(ids.ok()) << ids.status().to_string();
    EXPECT_EQ(values(*ids), expected[i]) << "text " << i << ": " << texts[i];
  }
  fmt::print("{}: {} texts equal\n", GetParam().vectors, texts.size());
}

INSTANTIATE_TEST_SUITE_P(Shared, LineVectors,
                         ::testing::Values(VectorCase{"qwen2", "qwen3.json"},
                                           VectorCase{"deepseek-r1-qwen", "qwen3.json"},
                                           VectorCase{"llama-bpe", "llama3.1.json"}, VectorCase{"gpt-2", "gpt2.json"},
                                           VectorCase{"llama-spm", "llama2.model"}));

class JsonVectors : public ::testing::TestWithParam<VectorCase> {};

TEST_P(JsonVectors, EncodeAndDecodeAreEqual) {
  const std::string path = tokenizer_file(GetParam().tokenizer);
  if (path.empty()) GTEST_SKIP() << "no shared data (or no xz): " << GetParam().tokenizer;
  const Result<Tokenizer> loaded = Tokenizer::load(path);
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  const Tokenizer& tokenizer = *loaded;
  const std::string folder = shared_data("tokenizers/vectors") + "/";
  std::map<std::string, std::string> texts;
  const Json inputs = *Json::read_file(folder + "multilingual2_inputs.json");
  for (const Json& item : inputs.as_array()) {
    texts[item.find("id")->as_string()] = item.find("text")->as_string();
  }
  const Json file = *Json::read_file(folder + GetParam().vectors);
  const Json::Array& entries = file.find("entries")->as_array();
  ASSERT_GT(entries.size(), 50u);
  for (const Json& entry : entries) {
    const std::string& name = entry.find("id")->as_string();
    const std::vector<int> expected = values(*entry.find("input_ids"));
    const auto ids = tokenizer.encode(texts.at(name));
    ASSERT_TRUE(ids.ok()) << ids.status().to_string();
    EXPECT_EQ(values(*ids), expected) << name << ": " << texts.at(name);
    const auto expected_ids = test::ids_of(expected);
    EXPECT_EQ(tokenizer.decode(expected_ids, false), entry.find("decoded_with_special")->as_string()) << name;
    EXPECT_EQ(tokenizer.decode(expected_ids, true), entry.find("decoded_skip_special")->as_string()) << name;
  }
  fmt::print("{}: {} texts equal\n", GetParam().vectors, entries.size());
}

INSTANTIATE_TEST_SUITE_P(Shared, JsonVectors,
                         ::testing::Values(VectorCase{"multilingual2_qwen2_5.json", "qwen3.json"},
                                           VectorCase{"multilingual2_gpt2.json", "gpt2.json"},
                                           VectorCase{"multilingual2_tinyllama.json", "llama2.model"}));

// The changes that encoding and decoding may together make to a text.
enum class Change { kNone, kNfc, kMetaspace };

struct RoundTripCase {
  const char* tokenizer;
  Change change;
};

class RoundTrip : public ::testing::TestWithParam<RoundTripCase> {};

std::string random_text(std::mt19937& random) {
  constexpr char32_t kRanges[] = {0x80, 0x250, 0x800, 0x3000, 0x10000, 0x20000, 0x110000};
  constexpr char32_t kFrequent[] = {U' ', U'\n', U'▁', U'é', U'\u0301', U'\u200d', U'中', U'😀'};
  std::string text;
  for (auto length = random() % 60; length > 0; --length) {
    const auto range = random() % 10;
    append_utf8(text, range < 7 ? static_cast<char32_t>(random() % kRanges[range]) : kFrequent[random() % 8]);
  }
  return text;
}

std::string changed(std::string text, Change change) {
  if (change == Change::kNfc) return *normalize(text, NormalForm::kNfc);
  if (change == Change::kMetaspace) {
    // The decoder replaces U+2581 by a space.
    for (std::size_t at; (at = text.find("▁")) != std::string::npos;) text.replace(at, 3, " ");
  }
  return text;
}

TEST_P(RoundTrip, RandomUnicodeSurvives) {
  const std::string path = tokenizer_file(GetParam().tokenizer);
  if (path.empty()) GTEST_SKIP() << "no shared data (or no xz): " << GetParam().tokenizer;
  const Result<Tokenizer> tokenizer = Tokenizer::load(path);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  std::mt19937 random(3);
  constexpr int kTexts = 3000;
  std::size_t characters = 0;
  for (int i = 0; i < kTexts; ++i) {
    const std::string text = random_text(random);
    const auto ids = tokenizer->encode(text);
    ASSERT_TRUE(ids.ok()) << ids.status().to_string();
    const std::string back = tokenizer->decode(*ids);
    EXPECT_EQ(back, changed(text, GetParam().change)) << Json(text).dump();
    StreamDecoder stream(*tokenizer);
    std::string streamed;
    for (const TokenId id : *ids) streamed += stream.push(id);
    EXPECT_EQ(streamed + stream.finish(), back);
    characters += count_characters(text);
  }
  fmt::print("{}: {} random texts of {} characters survive\n", GetParam().tokenizer, kTexts, characters);
}

INSTANTIATE_TEST_SUITE_P(Shared, RoundTrip,
                         ::testing::Values(RoundTripCase{"qwen3.json", Change::kNfc},
                                           RoundTripCase{"llama3.1.json", Change::kNone},
                                           RoundTripCase{"gpt2.json", Change::kNone},
                                           RoundTripCase{"llama2.model", Change::kMetaspace},
                                           RoundTripCase{"mistral-v3.model", Change::kMetaspace},
                                           RoundTripCase{"../models/stories260k/tokenizer.json", Change::kMetaspace}));

TEST(MistralV3, ControlTokens) {
  const std::string path = tokenizer_file("mistral-v3.model");
  if (path.empty()) GTEST_SKIP() << "no shared data: mistral-v3.model";
  const Result<Tokenizer> tokenizer = Tokenizer::load(path);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  EXPECT_EQ(tokenizer->vocab_size(), 32768);
  EXPECT_EQ(values(*tokenizer->encode("[INST]")), (std::vector<int>{1, 3}));
  EXPECT_TRUE(tokenizer->is_special(TokenId(3)));
}

TEST(Stories260k, VectorsAreEqual) {
  const std::string folder = shared_data("models/stories260k");
  if (folder.empty()) GTEST_SKIP() << "no shared data: models/stories260k";
  const Result<Tokenizer> loaded = Tokenizer::load(folder + "/tokenizer.json");
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  const Tokenizer& tokenizer = *loaded;
  const Json vectors = *Json::read_file(folder + "/tokenizer_vectors.json");
  for (const Json& entry : vectors.as_array()) {
    const std::string& text = entry.find("text")->as_string();
    std::vector<int> expected = values(*entry.find("ids_no_bos"));
    const auto ids = tokenizer.encode(text, kVectorOptions);
    ASSERT_TRUE(ids.ok()) << ids.status().to_string();
    EXPECT_EQ(values(*ids), expected) << text;
    EXPECT_EQ(tokenizer.decode(*ids), text);
    expected.insert(expected.begin(), 1);
    EXPECT_EQ(values(*tokenizer.encode(text)), expected) << text;
  }
}

TEST(Llama3, SpecialTokensAreAddedAndParsed) {
  const std::string path = unpacked_shared_data("tokenizers/llama3.1.json");
  if (path.empty()) GTEST_SKIP() << "no shared data (or no xz): llama3.1.json";
  const Result<Tokenizer> loaded = Tokenizer::load(path);
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  const Tokenizer& tokenizer = *loaded;
  EXPECT_EQ(values(*tokenizer.encode("Hello<|eot_id|>")), (std::vector<int>{128000, 9906, 128009}));
  const auto as_text = *tokenizer.encode("<|eot_id|>", {.add_special_tokens = false, .parse_special = false});
  EXPECT_GT(as_text.size(), 1u);
  EXPECT_EQ(tokenizer.decode(as_text), "<|eot_id|>");
  EXPECT_EQ(tokenizer.decode(*tokenizer.encode("a<|eot_id|>b")), "ab");
  EXPECT_TRUE(tokenizer.is_special(TokenId(128009)));
  EXPECT_EQ(tokenizer.vocab_size(), 128256);
}

// Returns about one million bytes of prose in several languages, code and numbers.
std::string mixed_text() {
  std::string out;
  const Json inputs = *Json::read_file(shared_data("tokenizers/vectors/multilingual2_inputs.json"));
  std::istringstream questions(test::read_bytes(shared_data("eval/gsm8k_test.jsonl")));
  std::string line;
  for (std::size_t i = 0; out.size() < 1'000'000 && std::getline(questions, line); ++i) {
    out += line + "\n" + inputs.as_array()[i % inputs.as_array().size()].find("text")->as_string() + "\n";
  }
  return out;
}

TEST(Speed, LoadEncodeAndDecode) {
  const std::string path = unpacked_shared_data("tokenizers/qwen3.json");
  if (path.empty()) GTEST_SKIP() << "no shared data (or no xz): qwen3.json";
  const auto load_start = std::chrono::steady_clock::now();
  const Result<Tokenizer> loaded = Tokenizer::load(path);
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  const Tokenizer& tokenizer = *loaded;
  const double load = seconds_since(load_start);
  const std::string text = mixed_text();
  const double mb = static_cast<double>(text.size()) * 1e-6;
  const auto encode_start = std::chrono::steady_clock::now();
  const auto ids = *tokenizer.encode(text, kVectorOptions);
  const double encode = seconds_since(encode_start);
  const auto decode_start = std::chrono::steady_clock::now();
  const std::string back = tokenizer.decode(ids);
  const double decode = seconds_since(decode_start);
  EXPECT_EQ(back, text);
  fmt::print("Qwen3: load {:.3f} s; {:.2f} MB, {} tokens: encode {:.1f} MB/s, decode {:.1f} MB/s, one thread\n", load,
             mb, ids.size(), mb / encode, mb / decode);
}

}  // namespace
}  // namespace tessera
