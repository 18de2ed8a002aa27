// Catches: a family whose results on several ranks differ from Hugging Face's when the engine computes a prompt in one
// of these ways (whole, in chunks, alone, in a batch, from the prefix cache); ranks whose results differ in any bit
// (every collected forward compares them); a rank that dispatches a forward differently from the others; experts that
// no rank computes, or two ranks compute.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "golden.h"
#include "golden_cases.h"
#include "rank_golden.h"
#include "tessera/engine/engine.h"
#include "tessera/runner/verify/soak.h"
#include "tessera/runner/verify/verify.h"

namespace tessera {
namespace {

using testing::case_name;
using testing::Golden;
using ::testing::HasSubstr;
using testing::make_engine;
using testing::read_golden;
using testing::run_all;

constexpr std::int64_t kChunk = testing::kRankChunk;

// `parts` is the number of parts that the experts are divided into.
EngineOptions options_for(const Golden& golden, int ranks, int parts = 1) {
  EngineOptions options = testing::rank_golden_options(golden);
  options.tp_size = ranks;
  options.ep_size = parts;
  options.graphs.piecewise_tokens = {4, 16, kChunk};
  return options;
}

void expect_scores(const char* name, int ranks, const Golden& golden, Engine& engine, const char* way) {
  const std::vector<Request> requests = testing::score_requests(golden);
  const std::vector<Completion> scored = run_all(engine, requests);
  double worst = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const double distance = testing::distance(scored[i].logits, golden.stored_rows(i)).absolute;
    worst = std::max(worst, distance);
    EXPECT_LE(distance, 1e-4) << way << ", prompt " << i;
  }
  std::printf("%s on %d ranks, %s: greatest difference %.2e\n", name, ranks, way, worst);
}

// Runs all prompts in one batch, then the same batch from the prefix cache, and then the first prompt alone without the
// cache.
void expect_greedy(const Golden& golden, Engine& engine) {
  const std::vector<Request> requests = testing::greedy_requests(golden);
  for (const bool cached : {false, true}) {
    const std::vector<Completion> done = run_all(engine, requests);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(done[i].output_ids, golden.greedy[i]) << "prompt " << i << (cached ? " cached" : "");
      if (!cached || std::ssize(golden.prompts[i]) <= kChunk) continue;
      EXPECT_GE(done[i].cached_tokens, kChunk) << "prompt " << i;
    }
  }
  engine.flush_prefix_cache();
  EXPECT_EQ(run_all(engine, {requests[0]})[0].output_ids, golden.greedy[0]) << "alone";
}

// If this checkpoint cannot be divided among `ranks` ranks, returns a text that the error must contain. Otherwise
// returns "".
std::string refusal(std::string_view name, int ranks, int parts = 1) {
  const std::string among = "does not divide among " + std::to_string(ranks) + " ranks";
  if (name == "gpt-oss-mxfp4" && parts < ranks) return "experts in MXFP4 are cut into multiples of 32";
  if (ranks == 2) return "";
  if (name == "llama-d64" || name == "llama-d128" || name == "qwen3-d128" || name == "gemma3-d256")
    return "num_attention_heads is 2, which " + among;
  const bool few_states =
      name == "qwen3.5" || name == "qwen3.5-moe" || name == "qwen3-next" || name.starts_with("quantised/qwen3.5");
  return few_states ? "linear_num_key_heads is 2, which " + among : "";
}

void expect_refused(const EngineOptions& options, const std::string& why) {
  const Status refused = Engine::create(options).status();
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("tp_size: " + std::to_string(options.tp_size)));
  EXPECT_THAT(refused.message(), HasSubstr(why));
}

class RankGoldens : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (const std::string absent = testing::absent_golden(GetParam()); !absent.empty()) GTEST_SKIP() << absent;
  }
};

void expect_two_ranks(const char* name) {
  const Golden golden = read_golden(name);
  EngineOptions whole = options_for(golden, 2);
  if (const std::string why = refusal(name, 2); !why.empty()) return expect_refused(whole, why);
  whole.chunked_prefill_size = 1600;
  whole.graphs.piecewise_tokens = {16, 256, 1600};
  const std::unique_ptr<Engine> engine = make_engine(whole);
  ASSERT_NE(engine, nullptr);
  expect_scores(name, 2, golden, *engine, "whole");
  const std::unique_ptr<Engine> chunked = make_engine(options_for(golden, 2));
  ASSERT_NE(chunked, nullptr);
  expect_scores(name, 2, golden, *chunked, "in chunks");
  expect_greedy(golden, *chunked);
  for (const auto& [key, forwards] : chunked->runner().counters().by_key)
    EXPECT_NE(key.runner, RunnerKind::kEager) << key.size;
}

TEST_P(RankGoldens, TwoRanks) {
  if (!testing::has_devices_for(2)) GTEST_SKIP() << "needs 2 GPUs";
  expect_two_ranks(GetParam());
}

TEST_P(RankGoldens, FourRanks) {
  if (!testing::has_devices_for(4)) GTEST_SKIP() << "needs 4 GPUs";
  const Golden golden = read_golden(GetParam());
  const EngineOptions options = options_for(golden, 4);
  if (const std::string why = refusal(GetParam(), 4); !why.empty()) return expect_refused(options, why);
  const std::unique_ptr<Engine> engine = make_engine(options);
  ASSERT_NE(engine, nullptr);
  expect_scores(GetParam(), 4, golden, *engine, "in chunks");
  expect_greedy(golden, *engine);
}

// Checkpoints with quantised weights, whose scales the ranks divide or share.
class QuantisedRankGoldens : public RankGoldens {};

TEST_P(QuantisedRankGoldens, TwoRanks) {
  if (!testing::has_devices_for(2)) GTEST_SKIP() << "needs 2 GPUs";
  expect_two_ranks(GetParam());
}

// Returns options with two-batch overlap for forwards of a few tokens or more.
EngineOptions halves_for(const Golden& golden, int parts = 1) {
  EngineOptions options = options_for(golden, 2, parts);
  options.two_batch_overlap = true;
  options.two_batch_least_tokens = 8;
  return options;
}

// Returns how many ranges of the prefill's instructions run twice, each time on one half of the rows.
std::size_t runs_in_halves(Engine& engine) {
  std::size_t runs = 0;
  for (const CompiledPart& part : engine.runner().prefill().executable().parts()) runs += part.program->halves.size();
  return runs;
}

class HalvesRankGoldens : public RankGoldens {};

TEST_P(HalvesRankGoldens, OneHalfIsExchangedBesideTheOther) {
  if (!testing::has_devices_for(2)) GTEST_SKIP() << "needs 2 GPUs";
  const Golden golden = read_golden(GetParam());
  const std::unique_ptr<Engine> engine = make_engine(halves_for(golden));
  ASSERT_NE(engine, nullptr);
  EXPECT_GE(runs_in_halves(*engine), 2U);
  expect_scores(GetParam(), 2, golden, *engine, "in halves");
  expect_greedy(golden, *engine);
}

class ExpertRankGoldens : public RankGoldens {
 protected:
  void run_parts(int ranks, int parts) {
    if (!testing::has_devices_for(ranks)) GTEST_SKIP() << "needs " << ranks << " GPUs";
    const Golden golden = read_golden(GetParam());
    const EngineOptions options = options_for(golden, ranks, parts);
    if (const std::string why = refusal(GetParam(), ranks, parts); !why.empty()) return expect_refused(options, why);
    const std::unique_ptr<Engine> engine = make_engine(options);
    ASSERT_NE(engine, nullptr);
    expect_scores(GetParam(), ranks, golden, *engine, "experts in parts");
    expect_greedy(golden, *engine);
    for (const auto& [key, forwards] : engine->runner().counters().by_key)
      EXPECT_NE(key.runner, RunnerKind::kEager) << key.size;
  }
};

TEST_P(ExpertRankGoldens, EachRankHasWholeExperts) { run_parts(2, 2); }
TEST_P(ExpertRankGoldens, TwoRanksShareAPart) { run_parts(4, 2); }

// Each rank replays its captured sizes, and compares the results with runs in which every value has its own memory. It
// also compares random batches with runs without graphs.
void expect_verified(const EngineOptions& options) {
  const std::unique_ptr<Engine> engine = make_engine(options);
  ASSERT_NE(engine, nullptr);
  EXPECT_EQ(runs_in_halves(*engine) > 0, options.two_batch_overlap);
  const Result<VerifyReport> report = verify(engine->runner(), /*show_progress=*/false);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_TRUE(report->equal()) << options.model_path;
  const Result<SoakReport> soaked = soak(engine->runner(), {.batches = 40});
  ASSERT_TRUE(soaked.ok()) << soaked.status().to_string();
  EXPECT_EQ(soaked->num_failures, 0) << (soaked->failures.empty() ? "" : soaked->failures.front());
}

TEST(RankVerify, EveryRankEqualsItsIsolatedRun) {
  if (!testing::has_devices_for(2)) GTEST_SKIP() << "needs 2 GPUs";
  // Covers separate and tied heads, states, windows, and a second table of embeddings.
  for (const char* name : {"llama", "llama3-rope-tied", "qwen3.5-text", "mistral-swa", "gemma4-e"})
    expect_verified(options_for(read_golden(name), 2));
}

TEST(RankVerify, EveryRankEqualsItsIsolatedRunOfItsExperts) {
  if (!testing::has_devices_for(2)) GTEST_SKIP() << "needs 2 GPUs";
  for (const char* name : {"qwen3-moe", "gpt-oss-mxfp4", "deepseek-v3"})
    expect_verified(options_for(read_golden(name), 2, /*parts=*/2));
}

TEST(RankVerify, EveryRankEqualsItsIsolatedRunInHalves) {
  if (!testing::has_devices_for(2)) GTEST_SKIP() << "needs 2 GPUs";
  for (const char* name : {"llama", "gemma4-e"}) expect_verified(halves_for(read_golden(name)));
  EngineOptions options = halves_for(read_golden("qwen3-moe"), /*parts=*/2);
  options.graphs.compiler = "fused";
  expect_verified(options);
}

// Covers slices of quantised weights: blocks and groups with scales, zero points, permuted columns, and experts.
class QuantisedRankVerify : public RankGoldens {};

TEST_P(QuantisedRankVerify, EveryRankEqualsItsIsolatedRun) {
  if (!testing::has_devices_for(2)) GTEST_SKIP() << "needs 2 GPUs";
  expect_verified(options_for(read_golden(GetParam()), 2));
}

TEST(RankExperts, RefusesExpertsThatDoNotDivide) {
  if (!testing::has_devices_for(4)) GTEST_SKIP() << "needs 4 GPUs";
  const Golden golden = read_golden("qwen3-moe");
  expect_refused(options_for(golden, 4, 3), "ep_size: 3 is not accepted; it must divide tp_size, which is 4");
  EngineOptions of_dense = options_for(golden, 2, 2);
  of_dense.model_path = testing::golden_path("llama");
  expect_refused(of_dense, "the model has no experts");
}

INSTANTIATE_TEST_SUITE_P(Dense, RankGoldens, ::testing::ValuesIn(testing::kDenseGoldens), case_name);
INSTANTIATE_TEST_SUITE_P(Families, HalvesRankGoldens,
                         ::testing::Values("llama", "gemma2", "gemma4-moe", "deepseek-v3", "gpt-oss", "qwen3-next"),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Experts, RankGoldens, ::testing::ValuesIn(testing::kMixtureGoldens), case_name);
INSTANTIATE_TEST_SUITE_P(Experts, ExpertRankGoldens, ::testing::ValuesIn(testing::kMixtureGoldens), case_name);
INSTANTIATE_TEST_SUITE_P(Quantised, ExpertRankGoldens,
                         ::testing::Values("quantised/qwen3-moe-ct-mxfp4", "quantised/qwen3.5-moe-fp8-block"),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Quantised, QuantisedRankGoldens, ::testing::ValuesIn(testing::kQuantisedGoldens), case_name);
INSTANTIATE_TEST_SUITE_P(RecurrentQuantised, QuantisedRankGoldens,
                         ::testing::ValuesIn(testing::kRecurrentQuantisedGoldens), case_name);
INSTANTIATE_TEST_SUITE_P(LargerQuantised, QuantisedRankGoldens, ::testing::ValuesIn(testing::kLargerQuantisedGoldens),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Quantised, QuantisedRankVerify,
                         ::testing::Values("quantised/qwen3-fp8-block", "quantised/llama-ct-nvfp4",
                                           "quantised/llama-awq", "quantised/qwen3-gptq"),
                         case_name);
INSTANTIATE_TEST_SUITE_P(LargerQuantised, QuantisedRankVerify,
                         ::testing::Values("shared/llama-gptq-desc", "shared/qwen3-moe-fp8-block"), case_name);
INSTANTIATE_TEST_SUITE_P(Latent, ExpertRankGoldens, ::testing::ValuesIn(testing::kLatentGoldens), case_name);
INSTANTIATE_TEST_SUITE_P(Recurrent, ExpertRankGoldens, ::testing::ValuesIn(testing::kRecurrentMixtureGoldens),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Latent, RankGoldens, ::testing::ValuesIn(testing::kLatentGoldens), case_name);
INSTANTIATE_TEST_SUITE_P(Recurrent, RankGoldens, ::testing::ValuesIn(testing::kRecurrentGoldens), case_name);
INSTANTIATE_TEST_SUITE_P(RecurrentExperts, RankGoldens, ::testing::ValuesIn(testing::kRecurrentMixtureGoldens),
                         case_name);

}  // namespace
}  // namespace tessera
