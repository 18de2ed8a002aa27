// Catches: a GGUF file whose metadata, tensors or tokenizer, as the engine reads them, differ from the model from which
// the file was made. The expected logits were computed from the file's weights, which gguf-py dequantised and which
// were then put back into Hugging Face's order.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
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
// On CPUs, products with blocks round their inputs to eight bits in groups of 32, which changes each product by about
// half a percent. If two experts have nearly equal scores, this may choose the other expert. In these small random
// models, the logits of such a prompt then differ more even without a fault, so the median over the prompts is
// compared.
constexpr double kRoundedLimit = 2e-2;
// The limit of models in which more roundings add up: gemma3 has six layers, each with norms behind attention and MLP
// that bring a rounding error back to its full size, and delta nets multiply three rounded inputs in each layer.
constexpr double kLongerLimit = 5e-2;
// On GPUs the dtype "auto" is a 16-bit type.
constexpr double kHalfLimit = 5e-2;

double rounded_limit(std::string_view name) {
  if (testing::test_device_name() != "cpu") return kHalfLimit;
  return name.find("gemma3") != name.npos || name.find("qwen35") != name.npos ? kLongerLimit : kRoundedLimit;
}

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
                         ::testing::Values("gemma4", "gemma4-e", "gemma4-moe", "quantised/gemma4-nvfp4-modelopt",
                                           "ministral3"),
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
  EXPECT_LE(median, rounded_limit(GetParam()));
  // On GPUs every model must show a rounding error.
  if (testing::test_device_name() != "cpu") {
    EXPECT_GE(median, 1e-5);
  }
}

// The least lead of a greedy token over all others, divided by the root mean square of the row's logits, at which a
// rounding error must not change the token: five times the standard deviation of a difference of two logits that are
// off by kRoundedLimit.
constexpr double kClearLead = 5 * 1.42 * kRoundedLimit;

// Returns the leads of the reference's greedy tokens, computed without rounding.
Result<std::vector<std::vector<double>>> greedy_leads(const Golden& golden) {
  const auto engine = TRY(Engine::create(options_for(golden.folder, 256)));
  std::vector<Request> scored;
  for (std::size_t i = 0; i < golden.prompts.size(); ++i) {
    std::vector<TokenId> tokens = golden.prompts[i];
    tokens.insert(tokens.end(), golden.greedy[i].begin(), golden.greedy[i].end() - 1);
    scored.push_back({.prompt = std::move(tokens), .sampling = {}, .score = true});
  }
  const auto scores = TRY(engine->run(scored));
  std::vector<std::vector<double>> leads(scored.size());
  for (std::size_t i = 0; i < scored.size(); ++i) {
    const std::size_t vocab = scores[i].logits.size() / scored[i].prompt.size();
    auto rows = std::span(scores[i].logits).last(golden.greedy[i].size() * vocab);
    for (const TokenId greedy : golden.greedy[i]) {
      const auto token = static_cast<std::size_t>(greedy.value());
      double other = -INFINITY;
      double squares = 0;
      for (std::size_t id = 0; id < vocab; ++id) {
        const auto logit = static_cast<double>(rows[id]);
        squares += logit * logit;
        if (id != token) other = std::max(other, logit);
      }
      leads[i].push_back((static_cast<double>(rows[token]) - other) / std::sqrt(squares / static_cast<double>(vocab)));
      rows = rows.subspan(vocab);
    }
  }
  return leads;
}

// Returns whether each greedy token of the golden has a lead of a tenth at least, by which tools/make_gguf_goldens.py
// chooses prompts.
bool every_token_leads(std::string_view name) {
  return std::ranges::any_of(testing::kGgufFamilyGoldens, [&](const char* family) { return name == family; });
}

// A prompt is compared up to its first other token, which must have had a small lead: all later tokens follow other
// texts.
TEST_P(GgufGoldens, RoundedInputsKeepClearGreedyTokens) {
  if (testing::test_device_name() != "cpu") GTEST_SKIP() << "rounding inputs to integers is the CPU's";
  const Golden golden = read_golden(GetParam());
  const auto leads = greedy_leads(golden);
  ASSERT_TRUE(leads.ok()) << leads.status().to_string();
  EngineOptions options = options_for(golden.folder, 256);
  options.dtype = "auto";
  auto engine = Engine::create(options);
  ASSERT_TRUE(engine.ok()) << engine.status().to_string();
  std::vector<Request> continued;
  for (const auto& prompt : golden.prompts)
    continued.push_back({.prompt = prompt, .stop = {.max_new_tokens = 12, .ignore_eos = true}});
  const auto texts = (*engine)->run(continued);
  ASSERT_TRUE(texts.ok()) << texts.status().to_string();
  std::size_t equal = 0;
  std::size_t all = 0;
  for (std::size_t i = 0; i < golden.prompts.size(); ++i) {
    const auto& want = golden.greedy[i];
    const auto& got = (*texts)[i].output_ids;
    ASSERT_EQ(got.size(), want.size());
    const auto same = static_cast<std::size_t>(std::ranges::mismatch(want, got).in1 - want.begin());
    if (same < want.size()) {
      EXPECT_LE((*leads)[i][same], kClearLead) << "prompt " << i << ", token " << same;
    }
    equal += same;
    all += want.size();
  }
  std::printf("%s with rounded inputs: %zu of %zu greedy tokens are equal\n", GetParam(), equal, all);
  if (every_token_leads(GetParam())) {
    EXPECT_EQ(equal, all);
  } else {
    EXPECT_GE(3 * equal, 2 * all);
  }
}

// The references round the same inputs as the engine, so integers that are computed rightly give the same logits. But
// sums in another order may round a value to the next integer, after which all later layers round other values. One
// prompt at least must be free of this, and have more than one token: queries and keys do not change the logits of one.
class RoundedGgufGoldens : public GgufGoldens {};

TEST_P(RoundedGgufGoldens, LogitsEqualTheRoundedReference) {
  if (testing::test_device_name() != "cpu") GTEST_SKIP() << "rounding inputs to integers is the CPU's";
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
  int equal = 0;
  int equal_with_keys = 0;
  for (std::size_t i = 0; i < golden.prompts.size(); ++i) {
    distances.push_back(testing::distance((*scores)[i].logits, golden.rounded_input_rows(i)).relative);
    if (distances.back() > kFloat32Limit) continue;
    ++equal;
    if (golden.prompts[i].size() > 1) ++equal_with_keys;
  }
  std::ranges::sort(distances);
  std::printf(
      "%s: %d of %zu prompts equal the rounded reference, %d of them longer than a token; the last is %.2e apart\n",
      GetParam(), equal, distances.size(), equal_with_keys, distances.back());
  EXPECT_GE(equal_with_keys, 1);
  EXPECT_LE(distances[distances.size() / 2], kRoundedLimit);
}

class GgufTokenizers : public GgufGoldens {};

TEST_P(GgufTokenizers, GiveTheIdsOfTheReference) {
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

INSTANTIATE_TEST_SUITE_P(Families, GgufGoldens, ::testing::ValuesIn(testing::kGgufFamilyGoldens), testing::case_name);
INSTANTIATE_TEST_SUITE_P(Families, RoundedGgufGoldens, ::testing::ValuesIn(testing::kGgufFamilyGoldens),
                         testing::case_name);
INSTANTIATE_TEST_SUITE_P(Small, GgufTokenizers, ::testing::ValuesIn(testing::kGgufGoldens), testing::case_name);
INSTANTIATE_TEST_SUITE_P(Larger, GgufTokenizers, ::testing::ValuesIn(testing::kLargerGgufGoldens), testing::case_name);
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
