// Catches: a GGUF file whose metadata, tensors or tokenizer, as the engine reads them, differ from the model from which
// the file was made. The expected logits were computed from the file's weights, which gguf-py dequantised and which
// were then put back into Hugging Face's order.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "golden.h"
#include "golden_cases.h"
#include "tessera/device/testing/environment.h"
#include "tessera/engine/engine.h"

namespace tessera {
namespace {

using testing::Golden;
using testing::read_golden;

constexpr double kFloat32Limit = 1e-4;
// Activations are rounded to eight bits in groups of 32, which changes each product by about half a percent. If two
// experts have nearly equal scores, this rounding may choose the other expert. In these small random models, the logits
// of such a prompt then differ more from the golden even without a fault, so the median over the prompts is compared.
constexpr double kRoundedLimit = 5e-2;

EngineOptions options_for(const std::string& path, std::int64_t chunk) {
  EngineOptions options{.model_path = path, .device = testing::test_device_name(), .dtype = "float32"};
  options.context_length = 512;
  options.max_running_requests = 8;
  options.chunked_prefill_size = chunk;
  options.graphs.piecewise_tokens = {4, 16};
  if (chunk > 16) options.graphs.piecewise_tokens.push_back(chunk);
  return options;
}

// Compares the model in `path` with the golden, for whole prompts and for prompts in chunks.
void expect_reference(const Golden& golden, const std::string& path, const char* name) {
  for (const std::int64_t chunk : {std::int64_t{256}, std::int64_t{16}}) {
    auto engine = Engine::create(options_for(path, chunk));
    ASSERT_TRUE(engine.ok()) << engine.status().to_string();
    std::vector<Request> scored;
    std::vector<Request> continued;
    for (const auto& prompt : golden.prompts) {
      scored.push_back({.prompt = prompt, .sampling = {}, .score = true});
      continued.push_back({.prompt = prompt, .stop = {.max_new_tokens = 12, .ignore_eos = true}});
    }
    const auto scores = (*engine)->run(scored);
    ASSERT_TRUE(scores.ok()) << scores.status().to_string();
    const auto texts = (*engine)->run(continued);
    ASSERT_TRUE(texts.ok()) << texts.status().to_string();
    double worst = 0;
    for (std::size_t i = 0; i < golden.prompts.size(); ++i) {
      worst = std::max(worst, testing::distance((*scores)[i].logits, golden.stored_rows(i)).absolute);
      EXPECT_EQ((*texts)[i].output_ids, golden.greedy[i]) << "prompt " << i << " in chunks of " << chunk;
    }
    std::printf("%s in chunks of %d: greatest difference %.2e\n", name, static_cast<int>(chunk), worst);
    EXPECT_LE(worst, kFloat32Limit);
  }
}

class GgufGoldens : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (const std::string absent = testing::absent_golden(GetParam()); !absent.empty()) GTEST_SKIP() << absent;
  }
};

TEST_P(GgufGoldens, LogitsAndGreedyTokensEqualTheReference) {
  const Golden golden = read_golden(GetParam());
  expect_reference(golden, golden.folder, GetParam());
}

// Checkpoints whose values were copied into a GGUF file (tools/make_gguf_text_goldens.py), so the checkpoint's golden
// is valid for the file.
class GgufCopies : public ::testing::TestWithParam<const char*> {};

TEST_P(GgufCopies, LogitsAndGreedyTokensEqualTheCheckpoints) {
  const std::string name = GetParam();
  expect_reference(read_golden(name), testing::data_path("gguf/" + name.substr(name.rfind('/') + 1) + "/golden.gguf"),
                   GetParam());
}

INSTANTIATE_TEST_SUITE_P(Small, GgufCopies,
                         ::testing::Values("gemma4", "gemma4-e", "gemma4-moe", "quantised/gemma4-nvfp4-modelopt"),
                         testing::case_name);

TEST_P(GgufGoldens, RoundedInputsStayNearTheReference) {
  const Golden golden = read_golden(GetParam());
  EngineOptions options = options_for(golden.folder, 256);
  options.dtype = "auto";
  auto engine = Engine::create(options);
  ASSERT_TRUE(engine.ok()) << engine.status().to_string();
  std::vector<Request> scored;
  for (const auto& prompt : golden.prompts) scored.push_back({.prompt = prompt, .sampling = {}, .score = true});
  const auto scores = (*engine)->run(scored);
  ASSERT_TRUE(scores.ok()) << scores.status().to_string();
  std::vector<double> distances;
  for (std::size_t i = 0; i < golden.prompts.size(); ++i)
    distances.push_back(testing::distance((*scores)[i].logits, golden.stored_rows(i)).relative);
  std::ranges::sort(distances);
  const double median = distances[distances.size() / 2];
  std::printf("%s with rounded inputs: relative difference %.2e (median), %.2e at most\n", GetParam(), median,
              distances.back());
  EXPECT_LE(median, kRoundedLimit);
  // On GPUs the dtype "auto" is a 16-bit type, so every model must show a rounding error.
  if (testing::test_device_name() != "cpu") {
    EXPECT_GE(median, 1e-5);
  }
}

TEST_P(GgufGoldens, TokenizerGivesTheIdsOfTheReference) {
  const Golden golden = read_golden(GetParam());
  EngineOptions options = options_for(golden.folder, 16);
  options.graphs.disable_cuda_graph = true;
  auto engine = Engine::create(options);
  ASSERT_TRUE(engine.ok()) << engine.status().to_string();
  const Tokenizer* tokenizer = (*engine)->tokenizer();
  ASSERT_NE(tokenizer, nullptr);
  const Json json = *Json::read_file(golden.folder + "/golden.json");
  for (const Json& row : json.find("tokenizer_cases")->as_array()) {
    const std::string& text = row.as_array()[0].as_string();
    const auto ids = tokenizer->encode(text, {.add_special_tokens = false});
    ASSERT_TRUE(ids.ok()) << ids.status().to_string();
    EXPECT_EQ(*ids, testing::ids_of(row.as_array()[1])) << Json(text).dump();
  }
}

INSTANTIATE_TEST_SUITE_P(Small, GgufGoldens, ::testing::ValuesIn(testing::kGgufGoldens), testing::case_name);
INSTANTIATE_TEST_SUITE_P(Larger, GgufGoldens, ::testing::ValuesIn(testing::kLargerGgufGoldens), testing::case_name);

// Returns the error of a start with a value that replaces one of the file's metadata.
std::string error_with(const char* override) {
  EngineOptions options = options_for(testing::data_path("gguf/qwen3-q4_k_m/golden-Q4_K_M.gguf"), 16);
  options.metadata_overrides = {*GgufOverride::parse(override)};
  return Engine::create(options).status().message();
}

// The file has two layers.
TEST(GgufModels, TensorsWithoutAPlaceAreAnError) {
  EXPECT_THAT(error_with("qwen3.block_count=int:1"),
              ::testing::HasSubstr("tensors have no place in the model: blk.1.attn_k.weight, "));
}

TEST(GgufModels, MissingTensorsHaveTheFilesNames) {
  EXPECT_THAT(error_with("qwen3.block_count=int:3"), ::testing::HasSubstr("tensor \"blk.2."));
}

}  // namespace
}  // namespace tessera
