// Catches: a family whose layers lose something between two pipeline stages (residuals, rotations, per-layer
// embeddings, states); stages whose results differ in any bit from those of one rank; a first stage that reads another
// step's token; groups of requests whose steps are mixed up while several steps are in flight; stages with unused
// graphs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>

#include "golden.h"
#include "golden_cases.h"
#include "rank_golden.h"
#include "tessera/base/testing/scratch_dir.h"
#include "tessera/engine/engine.h"
#include "tessera/runner/verify/soak.h"
#include "tessera/runner/verify/verify.h"

namespace tessera {
namespace {

using testing::case_name;
using testing::Golden;
using testing::greedy_requests;
using ::testing::HasSubstr;
using testing::make_engine;
using testing::read_golden;
using testing::run_all;

constexpr std::int64_t kChunk = testing::kRankChunk;

EngineOptions options_for(const Golden& golden, int stages, int ranks = 1) {
  EngineOptions options = testing::rank_golden_options(golden);
  options.tp_size = ranks;
  options.pp_size = stages;
  options.graphs.piecewise_tokens = {16, kChunk};
  return options;
}

std::vector<Completion> scores(const Golden& golden, Engine& engine) {
  return run_all(engine, testing::score_requests(golden));
}

void expect_scores(const char* name, const Golden& golden, const std::vector<Completion>& scored) {
  double worst = 0;
  for (std::size_t i = 0; i < scored.size(); ++i) {
    const double distance = testing::distance(scored[i].logits, golden.stored_rows(i)).absolute;
    worst = std::max(worst, distance);
    EXPECT_LE(distance, 1e-4) << "prompt " << i;
  }
  std::printf("%s in stages: greatest difference %.2e\n", name, worst);
}

// Runs all prompts at once, and then again from the prefix cache, with steps of several groups in flight.
void expect_greedy(const Golden& golden, Engine& engine) {
  const std::vector<Request> requests = greedy_requests(golden);
  for (const bool cached : {false, true}) {
    const std::vector<Completion> done = run_all(engine, requests);
    for (std::size_t i = 0; i < requests.size(); ++i)
      EXPECT_EQ(done[i].output_ids, golden.greedy[i]) << "prompt " << i << (cached ? " cached" : "");
  }
  for (const auto& [key, forwards] : engine.runner().counters().by_key)
    EXPECT_NE(key.runner, RunnerKind::kEager) << key.size;
}

// Returns why a family cannot be divided into stages; "" if it can.
std::string refusal(std::string_view name) {
  if (name == "gemma4-e") return "layers of several stages read %k_cache.";
  const bool quantised = name.starts_with("quantised/qwen3.5") || name == "shared/qwen3.5-fp8-block";
  if (name == "qwen3.5" || name == "qwen3.5-moe" || quantised) return "has a vision tower";
  return "";
}

class PipelineGoldens : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (const std::string absent = testing::absent_golden(GetParam()); !absent.empty()) GTEST_SKIP() << absent;
  }
};

void expect_two_stages(const char* name, const Golden& golden) {
  EngineOptions alone = options_for(golden, 1);
  // Uses half of the cores, as a stage does, because a library's order of sums may depend on the number of cores.
  alone.replicas = 2;
  const std::unique_ptr<Engine> one = make_engine(alone);
  ASSERT_NE(one, nullptr);
  const std::unique_ptr<Engine> engine = make_engine(options_for(golden, 2));
  ASSERT_NE(engine, nullptr);
  const std::vector<Completion> expected = scores(golden, *one);
  const std::vector<Completion> scored = scores(golden, *engine);
  expect_scores(name, golden, scored);
  // On a GPU, one rank may run a fused kernel for operators that lie in two different stages here, and a fused kernel
  // may give other bits. Bits are therefore compared on the CPU only.
  for (std::size_t i = 0; i < scored.size() && testing::test_device_name() == "cpu"; ++i)
    EXPECT_EQ(scored[i].logits, expected[i].logits) << "not the bits of one rank, prompt " << i;
  EXPECT_EQ(engine->parameters(), one->parameters());
  expect_greedy(golden, *engine);
}

TEST_P(PipelineGoldens, TwoStages) {
  if (!testing::has_devices_for(2)) GTEST_SKIP() << "needs 2 GPUs";
  const Golden golden = read_golden(GetParam());
  if (const std::string why = refusal(GetParam()); !why.empty()) {
    const Status refused = Engine::create(options_for(golden, 2)).status();
    EXPECT_EQ(refused.code(), StatusCode::kUnimplemented) << refused.to_string();
    EXPECT_THAT(refused.message(), ::testing::AllOf(HasSubstr("pp_size: 2 stages of "), HasSubstr(why)));
    return;
  }
  expect_two_stages(GetParam(), golden);
}

// Stages are refused for checkpoints with a vision tower. A config.json without "vision_config" makes text models of
// them, and the tower's tensors are not read.
class TextPipelineGoldens : public PipelineGoldens {};

TEST_P(TextPipelineGoldens, TwoStagesWithoutTheTower) {
  if (!testing::has_devices_for(2)) GTEST_SKIP() << "needs 2 GPUs";
  const std::string whole = testing::golden_path(GetParam());
  const test::ScratchDir text;
  for (const auto& file : std::filesystem::directory_iterator(whole))
    if (file.path().filename() != "config.json")
      std::filesystem::create_symlink(std::filesystem::absolute(file.path()),
                                      std::filesystem::path(text.path()) / file.path().filename());
  Json config = *Json::read_file(whole + "/config.json");
  config.set("vision_config", nullptr);
  text.write("config.json", config.dump());
  expect_two_stages(GetParam(), testing::read_golden_folder(text.path()));
}

class PipelineRankGoldens : public PipelineGoldens {};

TEST_P(PipelineRankGoldens, TwoStagesOfTwoRanks) {
  if (!testing::has_devices_for(4)) GTEST_SKIP() << "needs 4 GPUs";
  const Golden golden = read_golden(GetParam());
  const std::unique_ptr<Engine> engine = make_engine(options_for(golden, 2, 2));
  ASSERT_NE(engine, nullptr);
  expect_scores(GetParam(), golden, scores(golden, *engine));
  expect_greedy(golden, *engine);
}

// Two-batch overlap computes a batch in two halves. Between stages, however, a value is sent whole, with the rows of
// both halves.
TEST(PipelineGolden, TwoStagesOfTwoRanksInHalves) {
  if (!testing::has_devices_for(4)) GTEST_SKIP() << "needs 4 GPUs";
  const Golden golden = read_golden("llama");
  EngineOptions options = options_for(golden, 2, 2);
  options.two_batch_overlap = true;
  options.two_batch_least_tokens = 8;
  const std::unique_ptr<Engine> engine = make_engine(options);
  ASSERT_NE(engine, nullptr);
  std::size_t runs = 0;
  for (const CompiledPart& part : engine->runner().prefill().executable().parts()) runs += part.program->halves.size();
  EXPECT_GE(runs, 1U);
  expect_scores("llama", golden, scores(golden, *engine));
  expect_greedy(golden, *engine);
}

// There are as many stages as layers, so middle stages both receive and send.
TEST(PipelineGolden, AStageForEachLayer) {
  if (!testing::has_devices_for(6)) GTEST_SKIP() << "needs 6 GPUs";
  for (const char* name : {"gemma3", "qwen3.5-text"}) {
    const Golden golden = read_golden(name);
    const std::unique_ptr<Engine> one = make_engine(options_for(golden, 1));
    const int layers = static_cast<int>(one->config().num_hidden_layers);
    const std::unique_ptr<Engine> engine = make_engine(options_for(golden, layers));
    ASSERT_NE(engine, nullptr);
    expect_scores(name, golden, scores(golden, *engine));
    expect_greedy(golden, *engine);
    const Status refused = Engine::create(options_for(golden, layers + 1)).status();
    EXPECT_THAT(refused.message(), HasSubstr("1 to " + std::to_string(layers) + ", the number of layers, is"));
  }
}

TEST(PipelineVerify, EveryStageEqualsItsIsolatedRun) {
  if (!testing::has_devices_for(2)) GTEST_SKIP() << "needs 2 GPUs";
  for (const char* name : {"llama", "qwen3.5-text"}) {
    const std::unique_ptr<Engine> engine = make_engine(options_for(read_golden(name), 2));
    ASSERT_NE(engine, nullptr);
    const Result<VerifyReport> report = verify(engine->runner(), /*show_progress=*/false);
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    EXPECT_TRUE(report->equal()) << name;
    const Result<SoakReport> soaked = soak(engine->runner(), {.batches = 200});
    ASSERT_TRUE(soaked.ok()) << soaked.status().to_string();
    EXPECT_EQ(soaked->batches, 200);
    EXPECT_EQ(soaked->num_failures, 0) << (soaked->failures.empty() ? "" : soaked->failures.front());
  }
}

// There are too few pages for all sequences, so some are preempted while their steps are in flight, and others are
// cancelled meanwhile.
TEST(PipelineEngine, PreemptedAndCancelledRequestsLeaveTheOthersRight) {
  if (!testing::has_devices_for(2)) GTEST_SKIP() << "needs 2 GPUs";
  const Golden golden = read_golden("llama");
  std::vector<Request> requests;
  for (std::int32_t r = 0; r < 6; ++r) {
    Request request{.stop = {.max_new_tokens = 40, .ignore_eos = true}};
    for (std::int32_t i = 0; i < 20 + 7 * r; ++i) request.prompt.emplace_back((11 + i * 17 + r * i * i) % 200);
    requests.push_back(std::move(request));
  }
  const std::vector<Completion> expected = run_all(*make_engine(options_for(golden, 1)), requests);
  EngineOptions options = options_for(golden, 2);
  options.max_total_tokens = 200;
  options.disable_radix_cache = true;
  const std::unique_ptr<Engine> engine = make_engine(options);
  ASSERT_NE(engine, nullptr);
  std::vector<RequestId> ids;
  for (const Request& request : requests) ids.push_back(engine->submit(request).value());
  int steps = 0;
  int most_in_flight = 0;  // counted after a step was collected
  while (!engine->idle()) {
    if (++steps == 9) engine->cancel(ids[1]);
    if (steps == 14) engine->cancel(ids[4]);
    ASSERT_TRUE(engine->step().ok());
    most_in_flight = std::max(most_in_flight, engine->runner().in_flight());
  }
  EXPECT_EQ(most_in_flight, 1) << "the other stage has a step to compute meanwhile";
  EXPECT_GT(engine->stats().preemptions, 0);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::optional<Completion> done = engine->take(ids[i]);
    ASSERT_TRUE(done.has_value());
    if (i == 1 || i == 4) continue;
    EXPECT_EQ(done->output_ids, expected[i].output_ids) << i;
  }
  EXPECT_EQ(engine->stats().fullest_group().used_pages, 0);
}

// While steps are in flight, the engine makes all ranks capture graphs, reserve rows and report.
TEST(PipelineEngine, OrdersBetweenStepsInFlightAreCarriedOut) {
  if (!testing::has_devices_for(4)) GTEST_SKIP() << "needs 4 GPUs";
  const Golden golden = read_golden("llama");
  EngineOptions options = options_for(golden, 2, 2);
  options.graphs.capture = CaptureMode::kLazy;
  const std::unique_ptr<Engine> engine = make_engine(options);
  ASSERT_NE(engine, nullptr);
  std::vector<RequestId> ids;
  for (const Request& request : greedy_requests(golden)) ids.push_back(engine->submit(request).value());
  while (!engine->idle()) {
    ASSERT_TRUE(engine->step().ok());
    EXPECT_EQ(engine->stats().graphs->ranks, 4);
    EXPECT_TRUE(engine->runner().reserve_embeddings(engine->runner().embedding_rows() + 1).ok());
  }
  EXPECT_FALSE(engine->runner().decode().report().captured.empty());
  for (std::size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(engine->take(ids[i])->output_ids, golden.greedy[i]) << i;
}

// Checks that the stages sample the tokens that one rank samples. One request has a repetition penalty, so its tokens
// depend on the earlier text. Every sampled id is also an input of the next step.
TEST(PipelineEngine, SampledTokensAreThoseOfOneRank) {
  if (!testing::has_devices_for(2)) GTEST_SKIP() << "needs 2 GPUs";
  const Golden golden = read_golden("llama");
  std::vector<Request> requests = greedy_requests(golden);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].sampling.temperature = 0.9F;
    requests[i].sampling.seed = static_cast<std::int64_t>(100 + i);
    requests[i].logprobs.output = 2;
  }
  requests[0].sampling.repetition_penalty = 1.3F;  // depends on the text
  const std::vector<Completion> expected = run_all(*make_engine(options_for(golden, 1)), requests);
  const std::vector<Completion> done = run_all(*make_engine(options_for(golden, 2)), requests);
  for (std::size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(done[i].output_ids, expected[i].output_ids) << i;
}

// The families have windows, normed embeddings, partial rotations, experts, latents and states.
INSTANTIATE_TEST_SUITE_P(Families, PipelineGoldens,
                         ::testing::Values("llama", "llama3-rope-tied", "mistral-swa", "olmo2", "phi3-longrope",
                                           "qwen2", "qwen3", "gemma2", "gemma3", "gemma4", "gemma4-e", "qwen3-moe",
                                           "mixtral", "glm4-moe", "gemma4-moe", "gpt-oss-mxfp4", "deepseek-v3",
                                           "glm4-moe-lite", "qwen3.5-text", "qwen3.5", "qwen3-next"),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Quantised, PipelineGoldens, ::testing::ValuesIn(testing::kQuantisedGoldens), case_name);
INSTANTIATE_TEST_SUITE_P(RecurrentQuantised, PipelineGoldens, ::testing::ValuesIn(testing::kRecurrentQuantisedGoldens),
                         case_name);
INSTANTIATE_TEST_SUITE_P(LargerQuantised, PipelineGoldens, ::testing::ValuesIn(testing::kLargerQuantisedGoldens),
                         case_name);
INSTANTIATE_TEST_SUITE_P(RecurrentQuantised, TextPipelineGoldens,
                         ::testing::ValuesIn(testing::kRecurrentQuantisedGoldens), case_name);
INSTANTIATE_TEST_SUITE_P(LargerQuantised, TextPipelineGoldens, ::testing::Values("shared/qwen3.5-fp8-block"),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Families, PipelineRankGoldens,
                         ::testing::Values("llama", "gemma3", "qwen3-moe", "deepseek-v3", "qwen3.5-text"), case_name);

}  // namespace
}  // namespace tessera
