// Catches: a reranker, read from a GGUF file, whose score is not the difference of the logits of "yes" and "no"; a
// reranker that is read as a language model; an unusable head that the error does not name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <vector>

#include "golden.h"
#include "tessera/base/testing/scratch_dir.h"
#include "tessera/device/testing/environment.h"
#include "tessera/engine/engine.h"
#include "tessera/model/gguf/gguf_architectures.h"
#include "tessera/model/gguf/gguf_writer.h"
#include "tessera/model/weights/checkpoint.h"

namespace tessera {
namespace {

using testing::golden_path;
using ::testing::HasSubstr;

constexpr std::int64_t kHidden = 64;

// The names, shapes and values of a file's tensors, in the order of the file.
struct Content {
  std::vector<GgufLayout> layouts;
  std::vector<std::vector<float>> numbers;

  void add(std::string name, std::vector<std::int64_t> shape, std::vector<float> values) {
    layouts.push_back({.name = std::move(name), .type = BlockType::kF32, .shape = std::move(shape)});
    numbers.push_back(std::move(values));
  }
};

std::vector<float> numbers_of(const StoredTensor& tensor) {
  std::vector<float> values(tensor.data.size() / sizeof(std::uint16_t));
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint16_t half = 0;
    std::memcpy(&half, tensor.data.data() + 2 * i, sizeof half);
    const std::uint32_t bits = std::uint32_t{half} << 16;
    std::memcpy(&values[i], &bits, sizeof bits);
  }
  return values;
}

// Reads the golden reranker and returns its tensors in two parts. The first part has all tensors except the head, under
// the names that llama.cpp's converter gives them. The second part is the head's only row.
std::pair<Content, std::vector<float>> body_and_head() {
  const Checkpoint checkpoint = *Checkpoint::open(golden_path("qwen3-reranker"));
  Content body;
  std::vector<float> head;
  for (const std::string_view name : checkpoint.names()) {
    const StoredTensor& tensor = *checkpoint.find(name);
    EXPECT_EQ(tensor.dtype, StoredDtype::kBF16);
    if (name == "score.weight") {
      head = numbers_of(tensor);
      continue;
    }
    constexpr std::string_view kLayers = "model.layers.";
    std::string gguf;
    if (name.starts_with(kLayers)) {
      const std::string_view rest = name.substr(kLayers.size() + 2);
      const TensorNameRule* rule = find_rule_of_own(rest, true, {});
      gguf = "blk." + std::string(name.substr(kLayers.size(), 1)) + "." + std::string(rule->gguf);
    } else {
      gguf = find_rule_of_own("/" + std::string(name), false, {})->gguf;
    }
    body.add(std::move(gguf), tensor.shape, numbers_of(tensor));
  }
  return {std::move(body), std::move(head)};
}

GgufMetadata metadata_of(std::uint32_t pooling) {
  GgufMetadata metadata;
  metadata.set_string("general.architecture", "qwen3");
  for (const auto& [key, value] : {std::pair("block_count", 3), std::pair("context_length", 2048),
                                   std::pair("embedding_length", 64), std::pair("feed_forward_length", 32),
                                   std::pair("attention.head_count", 4), std::pair("attention.head_count_kv", 2),
                                   std::pair("attention.key_length", 32), std::pair("attention.value_length", 32)})
    metadata.set_uint32(std::string("qwen3.") + key, value);
  metadata.set_uint32("qwen3.pooling_type", pooling);
  metadata.set_float32("qwen3.attention.layer_norm_rms_epsilon", 1e-6);
  metadata.set_float32("qwen3.rope.freq_base", 1e6);
  return metadata;
}

std::string write(const test::ScratchDir& dir, const GgufMetadata& metadata, const Content& content) {
  std::string path = dir.path() + "/m.gguf";
  const auto fill = [&](std::size_t tensor, std::int64_t offset, std::span<std::byte> to) {
    std::memcpy(to.data(), reinterpret_cast<const std::byte*>(content.numbers[tensor].data()) + offset, to.size());
    return ok_status();
  };
  EXPECT_TRUE(write_gguf(path, metadata, content.layouts, {.fill = fill}).ok());
  return path;
}

EngineOptions options_of(const std::string& path) {
  EngineOptions options{.model_path = path, .device = testing::test_device_name(), .dtype = "float32"};
  options.context_length = 512;
  return options;
}

// Writes a GGUF file with the head `rows`, and checks that an engine with this file computes the golden's scores.
void expect_scores(const std::vector<float>& rows) {
  const Json json = *Json::read_file(golden_path("qwen3-reranker") + "/golden.json");
  const SafetensorsFile golden = *SafetensorsFile::open(golden_path("qwen3-reranker") + "/golden.safetensors");
  const test::ScratchDir dir;
  Content content = body_and_head().first;
  content.add("cls.output.weight", {std::ssize(rows) / kHidden, kHidden}, rows);
  GgufMetadata metadata = metadata_of(4);
  metadata.set_strings("qwen3.classifier.output_labels", std::vector<std::string>{"yes", "no"});
  const auto engine = Engine::create(options_of(write(dir, metadata, content)));
  ASSERT_TRUE(engine.ok()) << engine.status().to_string();
  EXPECT_EQ((*engine)->config().num_labels, 1);
  EXPECT_FALSE((*engine)->generates());
  double worst = 0;
  std::size_t i = 0;
  for (const Json& prompt : json.find("prompts")->as_array()) {
    const std::vector<TokenId> ids = testing::ids_of(prompt);
    const Request request{.prompt = ids, .score = true, .score_from = std::ssize(ids) - 1};
    const Result<std::vector<Completion>> done = (*engine)->run({&request, 1});
    ASSERT_TRUE(done.ok()) << done.status().to_string();
    float want = 0;
    std::memcpy(&want, golden.find("score_" + std::to_string(i++))->data.data(), sizeof want);
    ASSERT_EQ((*done)[0].logits.size(), 1u);
    worst = std::max(worst, std::abs(static_cast<double>((*done)[0].logits[0] - want)));
  }
  EXPECT_GT(i, 2u);
  std::printf("reranker with %zu rows: greatest difference %.2e\n", rows.size() / kHidden, worst);
  EXPECT_LE(worst, 1e-4);
}

TEST(GgufReranker, ScoresAreThoseOfYesLessNo) {
  const std::vector<float> head = body_and_head().second;
  std::vector<float> rows;
  const auto no = [](std::size_t i) { return 0.25F * static_cast<float>(static_cast<int>(i % 7) - 3); };
  for (std::size_t i = 0; i < head.size(); ++i) rows.push_back(head[i] + no(i));
  for (std::size_t i = 0; i < head.size(); ++i) rows.push_back(no(i));
  expect_scores(rows);
}

TEST(GgufReranker, OneRowIsTheScore) { expect_scores(body_and_head().second); }

TEST(GgufReranker, HeadsWithoutMeaningAreRefusedByName) {
  const auto refusal = [](const GgufMetadata& metadata, std::int64_t rows) {
    const test::ScratchDir dir;
    Content content = body_and_head().first;
    if (rows > 0)
      content.add("cls.output.weight", {rows, kHidden}, std::vector<float>(static_cast<std::size_t>(rows * kHidden)));
    return Engine::create(options_of(write(dir, metadata, content))).status().message();
  };
  EXPECT_THAT(refusal(metadata_of(4), 0), HasSubstr("tensor cls.output.weight is missing"));
  EXPECT_THAT(refusal(metadata_of(4), 3),
              HasSubstr("tensor cls.output.weight is [3, 64]; accepted: a matrix of 1 or 2"));
  GgufMetadata labels = metadata_of(4);
  labels.set_strings("qwen3.classifier.output_labels", std::vector<std::string>{"good", "bad"});
  EXPECT_THAT(refusal(labels, 2),
              HasSubstr("qwen3.classifier.output_labels is 2 of STRING; accepted: [\"yes\", \"no\"]"));
  GgufMetadata bert = metadata_of(4);
  bert.set_string("general.architecture", "bert");
  EXPECT_THAT(refusal(bert, 1), HasSubstr("general.architecture is \"bert\"; accepted: llama, qwen2"));
  GgufMetadata other;
  other.set_string("general.architecture", "qwen2");
  for (const auto& [key, value] :
       {std::pair("block_count", 3), std::pair("context_length", 2048), std::pair("embedding_length", 64),
        std::pair("feed_forward_length", 32), std::pair("attention.head_count", 2), std::pair("pooling_type", 4)})
    other.set_uint32(std::string("qwen2.") + key, value);
  other.set_float32("qwen2.attention.layer_norm_rms_epsilon", 1e-6);
  EXPECT_THAT(refusal(other, 1), HasSubstr("qwen2.pooling_type is 4; accepted: 0 (a language model)"));
}

}  // namespace
}  // namespace tessera
