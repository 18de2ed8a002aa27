// Catches: drafts on several ranks that change a request's output; a rank with another rank's slice of the draft layer
// or of its output head; ranks that draft different tokens; a rank's memory report or prediction that leaves out the
// draft layer; and keys and values of a draft layer that are stored at a wrong place because the model's own cache
// holds latent vectors (MLA). The ranks are CPU ranks of one process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/testing/scratch_dir.h"
#include "tessera/engine/drafts/random_eagle.h"
#include "tessera/engine/engine_test_util.h"
#include "tessera/engine/plan/rank_places.h"
#include "tessera/ops/testing/ranks.h"
#include "tessera/runner/memory/prediction.h"
#include "tessera/runner/verify/verify.h"

namespace tessera {
namespace {

using test::make_engine;
using test::outputs_of;
using test::request;
using test::sampled;

constexpr std::string_view kLatents = "goldens/deepseek-v3";
constexpr std::string_view kRandomEagle = "random-eagle3";  // stands for a layer of test::write_random_eagle()

struct RankedModel {
  const char* name;
  std::string_view model;       // the model's folder below tests/data
  std::string_view draft = "";  // draft folder below tests/data, or kRandomEagle; empty: the checkpoint's own layer
  int ranks = 2;
};
void PrintTo(const RankedModel& of, std::ostream* to) { *to << of.name; }

EngineOptions options_of(const RankedModel& of) {
  EngineOptions options = test::small_options();
  options.model_path = testing::data_path(std::string(of.model));
  options.deterministic = true;  // the bits of a row do not depend on the number of rows
  options.max_running_requests = 32;
  options.tp_size = of.ranks;
  return options;
}

// Returns requests that may choose only three token ids, so that some of their drafts are right and are kept.
std::vector<Request> few_tokens() {
  std::vector<Request> requests{request(12, 40), request(20, 25, 2), request(1, 30, 3), sampled(14, 40, 1)};
  for (Request& made : requests) made.sampling.allowed_tokens = {TokenId(5), TokenId(6), TokenId(7)};
  return requests;
}

class RankedDrafts : public ::testing::TestWithParam<RankedModel> {
 protected:
  void SetUp() override {
    if (!testing::has_devices_for(GetParam().ranks)) GTEST_SKIP() << "needs " << GetParam().ranks << " GPUs";
    if (GetParam().draft == kRandomEagle) test::write_random_eagle(folder_.path());
  }
  EngineOptions with_layer(EngineOptions options, const RankedModel& of) const {
    const std::string draft(of.draft);
    options.drafts.source = draft.empty()               ? DraftSource::kLayer
                            : draft.ends_with("eagle3") ? DraftSource::kEagle
                                                        : DraftSource::kModel;
    if (!draft.empty()) options.drafts.model_path = draft == kRandomEagle ? folder_.path() : testing::data_path(draft);
    return options;
  }

 private:
  const test::ScratchDir folder_;
};

TEST_P(RankedDrafts, OutputsAreThoseOfPlainDecodes) {
  const std::unique_ptr<Engine> plain = make_engine(options_of(GetParam()));
  const std::unique_ptr<Engine> drafting = make_engine(with_layer(options_of(GetParam()), GetParam()));
  const std::vector<Request> requests = few_tokens();
  for (const bool cached : {false, true})
    EXPECT_EQ(outputs_of(*drafting, requests), outputs_of(*plain, requests)) << (cached ? "cached" : "");
  EXPECT_GT(drafting->stats().drafts.kept, 10);
  EXPECT_LE(drafting->stats().steps, plain->stats().steps);
}

// A layer of random weights guesses right about as often as wrong, so some drafts are kept and some are refused. The
// number of kept drafts is close to that of one rank only if every rank has its own slices of the layer and of the
// head.
TEST_P(RankedDrafts, AsManyDraftsAreKeptAsOnOneRank) {
  RankedModel one = GetParam();
  one.ranks = 1;
  const std::unique_ptr<Engine> alone = make_engine(with_layer(options_of(one), one));
  const std::unique_ptr<Engine> ranked = make_engine(with_layer(options_of(GetParam()), GetParam()));
  const std::vector<Request> requests = few_tokens();
  ASSERT_EQ(outputs_of(*ranked, requests), outputs_of(*alone, requests));
  EXPECT_NEAR(static_cast<double>(ranked->stats().drafts.kept), static_cast<double>(alone->stats().drafts.kept), 3);
}

TEST_P(RankedDrafts, PromptsInPartsAndPreemptionChangeNothing) {
  EngineOptions options = options_of(GetParam());
  options.chunked_prefill_size = 16;
  options.max_total_tokens = 160;
  const std::vector<Request> requests{request(40, 40), request(50, 40, 2), request(33, 40, 3)};
  const std::unique_ptr<Engine> plain = make_engine(options);
  const std::unique_ptr<Engine> drafting = make_engine(with_layer(options, GetParam()));
  EXPECT_EQ(outputs_of(*drafting, requests), outputs_of(*plain, requests));
  EXPECT_GT(drafting->stats().drafts.drafted, 0);
}

TEST_P(RankedDrafts, PromptsInHalvesChangeNothing) {
  EngineOptions options = options_of(GetParam());
  const std::unique_ptr<Engine> plain = make_engine(options);
  options.two_batch_overlap = true;
  options.two_batch_least_tokens = 8;
  const std::unique_ptr<Engine> drafting = make_engine(with_layer(options, GetParam()));
  const std::vector<Request> requests{request(40, 20), request(50, 14, 2), request(33, 20, 3)};
  EXPECT_EQ(outputs_of(*drafting, requests), outputs_of(*plain, requests));
  EXPECT_GT(drafting->stats().drafts.drafted, 0);
}

// Every rank reports weights, cache and hidden states of the layer, and the plan predicts them.
TEST_P(RankedDrafts, MemoryOfTheLayerIsInReportAndPrediction) {
  const EngineOptions options = with_layer(options_of(GetParam()), GetParam());
  const std::unique_ptr<Engine> engine = make_engine(options);
  const std::unique_ptr<Engine> plain = make_engine(options_of(GetParam()));
  outputs_of(*engine, few_tokens());
  const std::unique_ptr<Device> device = open_device(options).value();
  const EnginePlan plan = plan_engine(options, *device).value();
  const MemoryReport planned = *predict_memory(plan.graphs, plan.runner, *device);
  const Result<std::vector<MemoryReport>> others = engine->peers().memory();
  ASSERT_TRUE(others.ok()) << others.status().to_string();
  ASSERT_EQ(std::ssize(*others), GetParam().ranks - 1);
  const MemoryReport own = engine->runner().memory();
  for (const MemoryUse use : {MemoryUse::kStaticInputs, MemoryUse::kPlans, MemoryUse::kArena}) {
    EXPECT_EQ(own[use], planned[use]) << memory_use_name(use);
    for (const MemoryReport& other : *others) EXPECT_EQ(other[use], own[use]) << memory_use_name(use);
  }
  for (const MemoryUse use : {MemoryUse::kWeights, MemoryUse::kStaticInputs})
    EXPECT_GT(own[use], plain->runner().memory()[use]) << memory_use_name(use);
  for (const MemoryReport& other : *others) {
    EXPECT_EQ(other[MemoryUse::kWeights], own[MemoryUse::kWeights]);
    EXPECT_EQ(other[MemoryUse::kKvCache], own[MemoryUse::kKvCache]);
  }
}

class DraftsBesideLatents : public RankedDrafts {};

TEST_P(DraftsBesideLatents, KeysHaveACacheGroupOfTheirOwn) {
  const std::unique_ptr<Engine> engine = make_engine(with_layer(options_of(GetParam()), GetParam()));
  EXPECT_EQ(make_engine(options_of(GetParam()))->stats().num_cache_groups, 1u);
  EXPECT_EQ(engine->stats().num_cache_groups, 2u);
  const Result<VerifyReport> report = verify(engine->runner(), false);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  for (const VerifyRow& row : report->rows) EXPECT_EQ(row.difference, "") << row.runner << " " << row.size;
}

constexpr RankedModel kModels[] = {
    {.name = "Latents", .model = "drafts/mtp-deepseek-v3"},
    {.name = "LatentsOfFourRanks", .model = "drafts/mtp-deepseek-v3", .ranks = 4},
    {.name = "Experts", .model = "drafts/mtp-glm4-moe"},
    {.name = "States", .model = "drafts/mtp-qwen3.5"},
    {.name = "Eagle", .model = "goldens/llama", .draft = "drafts/llama-eagle3"},
    {.name = "EagleOfExperts", .model = "goldens/qwen3-moe", .draft = "drafts/qwen3-moe-eagle3"},
    {.name = "Model", .model = "goldens/llama", .draft = "goldens/qwen3"},
    {.name = "ModelBesideExperts", .model = "goldens/qwen3-moe", .draft = "goldens/llama"}};
constexpr RankedModel kBesideLatents[] = {
    {.name = "EagleBesideLatents", .model = kLatents, .draft = kRandomEagle},
    {.name = "EagleBesideLatentsOfOneRank", .model = kLatents, .draft = kRandomEagle, .ranks = 1},
    {.name = "ModelBesideLatents", .model = kLatents, .draft = "goldens/llama"},
    {.name = "ModelBesideLatentsOfOneRank", .model = kLatents, .draft = "goldens/llama", .ranks = 1}};

std::string name_of(const ::testing::TestParamInfo<RankedModel>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Models, RankedDrafts, ::testing::ValuesIn(kModels), name_of);
INSTANTIATE_TEST_SUITE_P(Latents, RankedDrafts, ::testing::ValuesIn(kBesideLatents), name_of);
INSTANTIATE_TEST_SUITE_P(Latents, DraftsBesideLatents, ::testing::ValuesIn(kBesideLatents), name_of);

TEST(RankedDraftsOfOneModel, APipelineKeepsAsManyDraftsAsOneRank) {
  if (!testing::has_devices_for(2)) GTEST_SKIP() << "needs 2 GPUs";
  EngineOptions options = test::demo_options();
  options.deterministic = true;
  options.max_running_requests = 32;
  const std::unique_ptr<Engine> plain = make_engine(options);
  options.drafts.source = DraftSource::kLayer;
  options.drafts.for_all_requests = true;
  const std::unique_ptr<Engine> alone = make_engine(options);
  options.pp_size = 2;
  const std::unique_ptr<Engine> stages = make_engine(options);
  std::vector<Request> requests;
  for (const char* text : {"Tell me about cats and dogs.", "One day a cat sat.", "The sun", "A dog"})
    requests.push_back({.prompt = *plain->tokenizer()->encode(text), .stop = {.max_new_tokens = 60}});
  const auto want = outputs_of(*plain, requests);
  EXPECT_EQ(outputs_of(*alone, requests), want);
  EXPECT_EQ(outputs_of(*stages, requests), want);
  EXPECT_GT(alone->stats().drafts.kept, 40);
  EXPECT_NEAR(static_cast<double>(stages->stats().drafts.kept), static_cast<double>(alone->stats().drafts.kept), 3);
}

TEST(RankedDraftsOfOneModel, TextsOfAGrammarAreThoseOfPlainDecodes) {
  if (!GrammarCompiler::available()) GTEST_SKIP() << "built without xgrammar";
  if (!testing::has_devices_for(2)) GTEST_SKIP() << "needs 2 GPUs";
  EngineOptions options = test::demo_options();
  options.deterministic = true;
  options.tp_size = 2;
  options.max_running_requests = 32;
  const std::unique_ptr<Engine> plain = make_engine(options);
  options.drafts.source = DraftSource::kLayer;
  const std::unique_ptr<Engine> drafting = make_engine(options);
  const auto compiler = GrammarCompiler::create(*plain->tokenizer(), plain->config().vocab_size, plain->end_ids());
  ASSERT_TRUE(compiler.ok());
  const GrammarSpec spec{
      .kind = GrammarSpec::Kind::kJsonSchema,
      .text = R"({"type": "array", "minItems": 2, "maxItems": 4, "items": {"type": "object", "properties":
               {"name": {"enum": ["cat", "dog"]}, "legs": {"enum": [2, 4]}}, "required": ["name", "legs"],
               "additionalProperties": false}})"};
  std::vector<Request> requests;
  for (std::int64_t i = 0; i < 4; ++i) {
    Request made{.prompt = *plain->tokenizer()->encode("Tell me about cats and dogs."),
                 .sampling = {.temperature = i < 2 ? 0.0 : 1.0, .seed = i},
                 .stop = {.max_new_tokens = 60}};
    made.stop.min_new_tokens = 0;
    made.grammar = (*compiler)->compile(spec).value();
    requests.push_back(std::move(made));
  }
  EXPECT_EQ(outputs_of(*drafting, requests), outputs_of(*plain, requests));
  EXPECT_GT(drafting->stats().drafts.kept, 10);
}

}  // namespace
}  // namespace tessera
