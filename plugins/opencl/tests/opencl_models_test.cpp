// Compares whole models on the device with Hugging Face's logits and tokens, through command buffers and eagerly, and
// runs verify() over every captured size. Catches: faults that no operator's test shows.
#include <cstdio>

#include "golden.h"
#include "golden_cases.h"
#include "opened.h"
#include "tessera/device/testing/environment.h"
#include "tessera/engine/engine.h"
#include "tessera/runner/verify/verify.h"

namespace opencl_test {
namespace {

using tessera::Completion;
using tessera::Engine;
using tessera::EngineOptions;
using tessera::Request;
using tessera::testing::Golden;

// Covers each dense family and their differences: head sizes, biases, windows, softcaps, rotations, places of norms.
constexpr const char* kModels[] = {"llama",      "llama-bias", "llama-d128", "llama-yarn", "mistral-swa",
                                   "olmo2",      "phi3",       "qwen2",      "qwen2-swa",  "qwen3",
                                   "qwen3-d128", "gemma2",     "gemma4",     "gemma4-e"};

EngineOptions options_for(const std::string& folder, bool graphs, const std::string& dtype = "float32") {
  EngineOptions options{.model_path = folder, .device = "opencl", .dtype = dtype};
  options.registry = *registry();
  options.context_length = 1600;
  options.max_running_requests = 8;
  options.max_total_tokens = 8192;
  options.chunked_prefill_size = 48;
  options.graphs.piecewise_tokens = {4, 16, 48};
  options.graphs.decode_batches = {1, 4, 8};
  options.graphs.disable_cuda_graph = !graphs;
  return options;
}

class OpenClModels : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (why_no_device() != nullptr) GTEST_SKIP() << why_no_device();
  }
};

TEST_P(OpenClModels, LogitsAndTokens) {
  const Golden golden = tessera::testing::read_golden(GetParam());
  for (const bool graphs : {true, false}) {
    auto engine = Engine::create(options_for(golden.folder, graphs));
    ASSERT_TRUE(engine.ok()) << engine.status().to_string();
    std::vector<Request> scored;
    std::vector<Request> written;
    for (const auto& prompt : golden.prompts) {
      scored.push_back({.prompt = prompt, .sampling = {}, .score = true});
      written.push_back({.prompt = prompt, .stop = {.max_new_tokens = 12, .ignore_eos = true}});
    }
    const auto scores = (*engine)->run(scored);
    ASSERT_TRUE(scores.ok()) << scores.status().to_string();
    const auto texts = (*engine)->run(written);
    ASSERT_TRUE(texts.ok()) << texts.status().to_string();
    double worst = 0;
    for (std::size_t i = 0; i < golden.prompts.size(); ++i) {
      worst = std::max(worst, tessera::testing::distance((*scores)[i].logits, golden.stored_rows(i)).absolute);
      EXPECT_EQ((*texts)[i].output_ids, golden.greedy[i]) << "prompt " << i;
    }
    std::printf("%s %s: greatest difference %.2e\n", GetParam(), graphs ? "command buffers" : "eager", worst);
    EXPECT_LE(worst, 1e-4);
    for (const auto& [key, forwards] : (*engine)->runner().counters().by_key)
      EXPECT_EQ(key.runner == tessera::RunnerKind::kEager, !graphs) << key.size;
  }
}

// Covers values that are stored in 16 bits. Every device has the conversions for them.
class OpenClNarrowModels : public OpenClModels {};

TEST_P(OpenClNarrowModels, Logits) {
  const Golden golden = tessera::testing::read_golden(GetParam());
  std::vector<Request> scored;
  for (const auto& prompt : golden.prompts) scored.push_back({.prompt = prompt, .sampling = {}, .score = true});
  for (const char* dtype : {"bfloat16", "float16"}) {
    auto engine = Engine::create(options_for(golden.folder, /*graphs=*/true, dtype));
    ASSERT_TRUE(engine.ok()) << engine.status().to_string();
    const auto scores = (*engine)->run(scored);
    ASSERT_TRUE(scores.ok()) << scores.status().to_string();
    double worst = 0;
    for (std::size_t i = 0; i < golden.prompts.size(); ++i)
      worst = std::max(worst, tessera::testing::distance((*scores)[i].logits, golden.stored_rows(i)).relative);
    std::printf("%s %s: relative difference %.2e\n", GetParam(), dtype, worst);
    EXPECT_LE(worst, 2e-2);
    EXPECT_GE(worst, 1e-5) << "values were stored in more than 16 bits";
  }
}

TEST_P(OpenClModels, Verify) {
  auto engine = Engine::create(options_for(tessera::testing::golden_path(GetParam()), /*graphs=*/true));
  ASSERT_TRUE(engine.ok()) << engine.status().to_string();
  const auto report = tessera::verify((*engine)->runner(), /*show_progress=*/false);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_TRUE(report->equal());
  for (const tessera::VerifyRow& row : report->rows) EXPECT_EQ(row.difference, "") << row.runner << " " << row.size;
}

INSTANTIATE_TEST_SUITE_P(Dense, OpenClNarrowModels, ::testing::Values("qwen3"), tessera::testing::case_name);
INSTANTIATE_TEST_SUITE_P(Dense, OpenClModels, ::testing::ValuesIn(kModels), tessera::testing::case_name);

}  // namespace
}  // namespace opencl_test
