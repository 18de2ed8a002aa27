// Tests layers that draft tokens from a model's hidden states (multi-token prediction and EAGLE). Catches: a draft
// layer whose results differ from the reference implementation, after a prompt or after its own drafts; rows that read
// another token's hidden state; keys and values of refused drafts that are not overwritten by the keys and values of
// the chosen tokens; a draft's graph whose results differ from those of an eager draft, or that remains after its
// replays failed; and inconsistent inputs that are accepted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "tessera/model/families/eagle3.h"
#include "tessera/model/weights/safetensors.h"
#include "tessera/runner/drafts/draft_test_util.h"
#include "tessera/runner/verify/verify.h"

#include "../../../tests/golden.h"

namespace tessera {
namespace {

using testing::count_up;
using testing::draft;
using testing::Drafts;
using testing::forward;
using testing::Golden;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using testing::kTolerance;
using testing::long_options;
using testing::make_batch;
using testing::make_draft_bench;
using testing::name_of;
using testing::numbers;
using testing::Rows;
using testing::RunnerBench;

// Returns the folder of a checkpoint that contains both a model and a next-token layer.
std::string drafting_folder(const std::string& name) {
  return testing::data_path(name.starts_with("gguf/") ? name : "drafts/" + name);
}

// Returns the folder of the model for which a draft layer was made.
std::string base_folder(const std::string& name) {
  const Json json = *Json::read_file(drafting_folder(name) + "/golden.json");
  return testing::data_path("goldens/" + json.find("base")->as_string());
}

std::shared_ptr<const EagleDraft> read_eagle(const std::string& folder, const std::string& base) {
  const Result<EagleDraft> eagle =
      read_eagle3(folder, *ModelConfig::read(base, built_in_families()), built_in_families(), true);
  EXPECT_TRUE(eagle.ok()) << eagle.status().to_string();
  return std::make_shared<const EagleDraft>(*eagle);
}

RunnerBench make_drafting(const std::string& name) {
  return make_draft_bench(drafting_folder(name), {.draft_layer = true}, long_options());
}

// Returns a runner whose forwards may verify up to three drafts of a request. `name` is a checkpoint with a next-token
// layer, or the folder of a draft layer.
RunnerBench make_drafting_in_steps(const std::string& name, CaptureMode capture = CaptureMode::kEager) {
  const bool is_eagle = name.ends_with("eagle3");
  const std::string folder = is_eagle ? base_folder(name) : drafting_folder(name);
  ModelOptions model{.draft_layer = !is_eagle};
  if (is_eagle) model.eagle = read_eagle(drafting_folder(name), folder);
  RunnerOptions options = long_options();
  model.max_drafts = options.max_drafts = 3;
  options.capture = capture;
  return make_draft_bench(folder, model, options);
}

std::vector<std::int32_t> behind_first(const std::vector<std::int32_t>& ids) { return {ids.begin() + 1, ids.end()}; }

class DraftGoldens : public ::testing::TestWithParam<const char*> {
 protected:
  Golden golden = testing::read_golden_folder(drafting_folder(GetParam()));
  RunnerBench bench = make_drafting(GetParam());
};

TEST_P(DraftGoldens, LogitsBehindEveryTokenOfAPrompt) {
  for (std::size_t i = 0; i < golden.prompts.size(); ++i) {
    const std::vector<std::int32_t> ids = numbers(golden.prompts[i]);
    if (ids.size() < 2) continue;
    forward(bench, {{.ids = ids}});
    const std::vector<std::int32_t> next = behind_first(ids);
    const Drafts drafts = draft(bench, {{.ids = next}}, Rows::kAll, count_up(std::ssize(next)));
    const std::vector<float> want = testing::stored_logits(golden.logits, i, "mtp_logits_");
    EXPECT_LT(testing::distance(drafts.logits, want).absolute, kTolerance) << "prompt " << i;
  }
}

// If ModelOptions::draft_vocab limits the number of ids, the draft's head consists of the first rows of the model's
// head.
TEST_P(DraftGoldens, LogitsOfFewerIds) {
  constexpr std::size_t kIds = 48;
  RunnerBench fewer =
      make_draft_bench(drafting_folder(GetParam()), {.draft_layer = true, .draft_vocab = kIds}, long_options());
  const std::vector<std::int32_t> ids = numbers(golden.prompts[2]);
  const std::vector<std::int32_t> next = behind_first(ids);
  forward(fewer, {{.ids = ids}});
  const Drafts drafts = draft(fewer, {{.ids = next}}, Rows::kAll, count_up(std::ssize(next)));
  const std::vector<float> all = testing::stored_logits(golden.logits, 2, "mtp_logits_");
  const std::size_t vocab = all.size() / next.size();
  std::vector<float> want;
  for (std::size_t row = 0; row < next.size(); ++row)
    want.insert(want.end(), all.begin() + static_cast<std::ptrdiff_t>(row * vocab),
                all.begin() + static_cast<std::ptrdiff_t>(row * vocab + kIds));
  ASSERT_EQ(drafts.logits.size(), want.size());
  EXPECT_LT(testing::distance(drafts.logits, want).absolute, kTolerance);
}

// The prompt is computed in two parts. For the second part, the layer reads the keys and values that it stored for the
// first part.
TEST_P(DraftGoldens, LogitsOfAPromptInParts) {
  const std::vector<std::int32_t> ids = numbers(golden.prompts[2]);
  const std::int64_t half = std::ssize(ids) / 2;
  const std::vector<std::int32_t> next = behind_first(ids);
  forward(bench, {{.ids = {ids.begin(), ids.begin() + half}}});
  draft(bench, {{.ids = {next.begin(), next.begin() + half}}}, Rows::kLast, count_up(half));
  forward(bench, {{.ids = ids, .computed = half}});
  const Drafts drafts = draft(bench, {{.ids = next, .computed = half}}, Rows::kAll, count_up(std::ssize(next) - half));
  const std::vector<float> all = testing::stored_logits(golden.logits, 2, "mtp_logits_");
  const std::vector<float> want(all.end() - std::ssize(drafts.logits), all.end());
  EXPECT_LT(testing::distance(drafts.logits, want).absolute, kTolerance);
}

INSTANTIATE_TEST_SUITE_P(Mtp, DraftGoldens,
                         ::testing::Values("mtp-deepseek-v3", "mtp-glm4-moe", "mtp-qwen3.5", "gguf/qwen35-mtp"),
                         name_of);

// Compares drafts after a prompt with goldens. The first draft continues the prompt's last hidden state, and each later
// draft continues the hidden state that the layer itself computed.
class DraftChains : public DraftGoldens {};

TEST_P(DraftChains, DraftsBehindDraftsContinueTheirOwnHiddenStates) {
  const Json json = *Json::read_file(golden.folder + "/golden.json");
  for (std::size_t i = 0; i < golden.prompts.size(); ++i) {
    const std::vector<std::int32_t> ids = numbers(golden.prompts[i]);
    const auto length = static_cast<std::int64_t>(ids.size());
    forward(bench, {{.ids = ids}});
    std::vector<std::int32_t> next = behind_first(ids);
    next.push_back(golden.greedy[i][0].value());
    Drafts step = draft(bench, {{.ids = next}}, Rows::kLast, count_up(length));
    std::vector<float> logits = step.logits;
    std::vector<TokenId> tokens = step.tokens;
    for (int further = 0; further < 2; ++further) {
      next.push_back(tokens.back().value());
      step = draft(bench, {{.ids = next, .computed = std::ssize(next) - 1}}, Rows::kLast, step.rows);
      logits.insert(logits.end(), step.logits.begin(), step.logits.end());
      tokens.push_back(step.tokens[0]);
    }
    EXPECT_LT(testing::distance(logits, testing::stored_logits(golden.logits, i, "mtp_chain_")).absolute, kTolerance);
    EXPECT_EQ(tokens, testing::ids_of(json.find("mtp_chain_tokens")->as_array()[i])) << "prompt " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Nextn, DraftChains, ::testing::Values("mtp-deepseek-v3", "mtp-glm4-moe"), name_of);

class EagleGoldens : public ::testing::TestWithParam<const char*> {
 protected:
  const std::string folder = drafting_folder(GetParam());
  const Json json = *Json::read_file(folder + "/golden.json");
  const SafetensorsFile logits = *SafetensorsFile::open(folder + "/golden.safetensors");
  const std::string base = base_folder(GetParam());
  std::vector<TokenId> ids_of(const char* list, std::size_t i) {
    return testing::ids_of(json.find(list)->as_array()[i]);
  }
};

// The first draft reads the hidden states of three layers of the target model. Later drafts read the draft layer's own
// output. The golden file gives ids of the target model.
TEST_P(EagleGoldens, DraftsOfAChainAndTheirLogits) {
  RunnerBench bench = make_draft_bench(base, {.eagle = read_eagle(folder, base)}, long_options());
  for (std::size_t i = 0; i < json.find("prompts")->as_array().size(); ++i) {
    const std::vector<std::int32_t> ids = numbers(ids_of("prompts", i));
    std::vector<std::int32_t> next = behind_first(ids);
    next.push_back(ids_of("greedy", i)[0].value());
    forward(bench, {{.ids = ids}});
    Drafts step = draft(bench, {{.ids = next}}, Rows::kAll, count_up(std::ssize(ids)));
    const std::vector<float> of_prompt = testing::stored_logits(logits, i, "draft_prefill_logits_");
    EXPECT_LT(testing::distance(step.logits, of_prompt).absolute, kTolerance) << "prompt " << i;

    forward(bench, {{.ids = ids}});
    step = draft(bench, {{.ids = next}}, Rows::kLast, count_up(std::ssize(ids)));
    std::vector<float> made = step.logits;
    std::vector<TokenId> tokens = step.tokens;
    for (int further = 0; further < 2; ++further) {
      next.push_back(tokens.back().value());
      step = draft(bench, {{.ids = next, .computed = std::ssize(next) - 1}}, Rows::kLast, step.rows);
      made.insert(made.end(), step.logits.begin(), step.logits.end());
      tokens.push_back(step.tokens[0]);
    }
    const std::vector<float> want = testing::stored_logits(logits, i, "draft_free_logits_");
    EXPECT_LT(testing::distance(made, want).absolute, kTolerance) << "prompt " << i;
    EXPECT_EQ(tokens, ids_of("draft_tokens_free", i)) << "prompt " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Eagle3, EagleGoldens, ::testing::Values("llama-eagle3", "qwen3-moe-eagle3"), name_of);

// The two requests have different lengths, and their hidden states lie one after the other.
TEST(DraftStep, RequestsOfABatchContinueTheirOwnRows) {
  RunnerBench bench = make_drafting("mtp-glm4-moe");
  const std::vector<std::int32_t> first = testing::ids(9, 1);
  const std::vector<std::int32_t> second = testing::ids(6, 2);
  const auto alone = [&](const std::vector<std::int32_t>& ids) {
    forward(bench, {{.ids = ids}});
    return draft(bench, {{.ids = behind_first(ids)}}, Rows::kLast, count_up(std::ssize(ids) - 1)).logits;
  };
  std::vector<float> want = alone(first);
  const std::vector<float> more = alone(second);
  want.insert(want.end(), more.begin(), more.end());
  forward(bench, {{.ids = first}, {.ids = second}});
  std::vector<std::int32_t> rows = count_up(8);
  const std::vector<std::int32_t> rest = count_up(5, 9);
  rows.insert(rows.end(), rest.begin(), rest.end());
  const Drafts both = draft(bench, {{.ids = behind_first(first)}, {.ids = behind_first(second)}}, Rows::kLast, rows);
  EXPECT_LT(testing::distance(both.logits, want).absolute, 1e-5);
}

// After a draft is refused, the keys and values of the chosen token overwrite the keys and values of the draft.
TEST(DraftStep, RefusedDraftsLeaveNoTrace) {
  RunnerBench bench = make_drafting("mtp-glm4-moe");
  const std::vector<std::int32_t> ids = testing::ids(9, 1);
  std::vector<std::int32_t> next = behind_first(ids);
  next.push_back(11);
  const auto continued = [&](std::int32_t refused) {
    forward(bench, {{.ids = ids}});
    draft(bench, {{.ids = next}}, Rows::kLast, count_up(9));
    if (refused >= 0) {
      std::vector<std::int32_t> wrong = next;
      wrong.push_back(refused);
      draft(bench, {{.ids = wrong, .computed = 9}}, Rows::kLast, {8});
    }
    std::vector<std::int32_t> longer = ids;
    longer.push_back(11);
    forward(bench, {{.ids = longer, .computed = 9}});
    std::vector<std::int32_t> behind = next;
    behind.push_back(12);
    return draft(bench, {{.ids = behind, .computed = 9}}, Rows::kLast, {0}).logits;
  };
  const std::vector<float> want = continued(-1);
  EXPECT_EQ(continued(300), want);
}

// The row that makes a second draft reads the id of the first draft from device memory.
TEST(DraftStep, RowsNameDraftsThatAreOnTheDevice) {
  RunnerBench bench = make_drafting("mtp-glm4-moe");
  const std::vector<std::int32_t> ids = testing::ids(9, 1);
  std::vector<std::int32_t> next = behind_first(ids);
  next.push_back(11);
  const auto second = [&](bool by_row) {
    forward(bench, {{.ids = ids}});
    next.resize(9);
    const std::int32_t first = draft(bench, {{.ids = next}}, Rows::kLast, count_up(9)).tokens[0].value();
    DraftStep& step = bench.runner->drafts();
    next.push_back(by_row ? 300 : first);
    ForwardBatch batch =
        make_batch({{.ids = next, .computed = 9}}, Rows::kLast, bench.runner->model().num_cache_groups());
    if (by_row) batch.input_rows[0] = 0;
    std::vector<float> logits(static_cast<std::size_t>(bench.runner->vocab_size()));
    EXPECT_TRUE(step.read({.batch = batch, .rows = std::vector<std::int32_t>{8}}).ok());
    EXPECT_TRUE(step.draft({.rows = std::vector<std::int32_t>{0}, .first_id = 1}, logits).ok());
    return logits;
  };
  EXPECT_EQ(second(true), second(false));
}

class DraftVerify : public ::testing::TestWithParam<const char*> {};

TEST_P(DraftVerify, LayerAndHeadEqualTheirIsolatedRuns) {
  RunnerBench bench = make_drafting_in_steps(GetParam());
  ASSERT_TRUE(bench.runner->capture().ok());
  const Result<VerifyReport> report = verify(*bench.runner, false);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  std::map<std::string, std::vector<std::int64_t>> sizes;
  for (const VerifyRow& row : report->rows) {
    EXPECT_EQ(row.difference, "") << row.runner << " " << row.size;
    sizes[row.runner].push_back(row.size);
  }
  EXPECT_THAT(sizes["draft"], IsSupersetOf({1, 2, 4, 8, 16, 128, 256}));
  EXPECT_THAT(sizes["draft head"], IsSupersetOf({1, 8, 256}));
  EXPECT_THAT(sizes["draft decode"], IsSupersetOf({1, 2, 4}));
  EXPECT_THAT(sizes["draft decode, drafts"], IsSupersetOf({2, 4}));
  EXPECT_THAT(sizes["draft decode, last rows, drafts"], IsSupersetOf({2, 4}));
}

// The head of llama-eagle3 numbers tokens differently from the model, so its draft graph also maps its ids to the
// model's ids.
constexpr const char* kLayers[] = {"mtp-deepseek-v3", "mtp-glm4-moe", "mtp-qwen3.5", "llama-eagle3"};
INSTANTIATE_TEST_SUITE_P(Layers, DraftVerify, ::testing::ValuesIn(kLayers), name_of);

// Makes two drafts for each of two requests. read() is called twice, and each call makes one draft for each request. In
// the first call, one request has several rows.
std::vector<TokenId> drafts_of_reads(RunnerBench& bench, bool has_graph) {
  const std::vector<std::int32_t> ids = testing::ids(9, 1);
  const std::vector<std::int32_t> others = testing::ids(6, 2);
  forward(bench, {{.ids = ids}, {.ids = others}});
  draft(bench, {{.ids = behind_first(ids)}, {.ids = behind_first(others)}}, Rows::kNone, count_up(13));
  DraftStep& step = bench.runner->drafts();
  const std::size_t groups = bench.runner->model().num_cache_groups();
  ForwardBatch batch = make_batch({{.ids = ids, .computed = 6}, {.ids = others, .computed = 5}}, Rows::kLast, groups);
  batch.draft_lens = {2, 0};
  EXPECT_EQ(*step.has_graph(batch), has_graph);
  const Status first = step.read({.batch = batch, .rows = count_up(4, 3), .first_id = 0});
  EXPECT_TRUE(first.ok()) << first.to_string();
  batch = make_batch({{.ids = testing::ids(10, 1), .computed = 9}, {.ids = testing::ids(7, 2), .computed = 6}},
                     Rows::kLast, groups);
  batch.input_rows = {0, 1};
  EXPECT_TRUE(step.read({.batch = batch, .rows = count_up(2, 2), .first_id = 2}).ok());
  EXPECT_TRUE(step.fetch(4).ok());
  EXPECT_TRUE(bench.runner->stream().synchronize().ok());
  return {step.fetched().begin(), step.fetched().end()};
}

class DraftGraph : public ::testing::TestWithParam<const char*> {};

TEST_P(DraftGraph, DraftsWhatOperatorsDraft) {
  RunnerBench eager = make_drafting_in_steps(GetParam());
  RunnerBench graphs = make_drafting_in_steps(GetParam());
  ASSERT_TRUE(graphs.runner->capture().ok());
  EXPECT_EQ(drafts_of_reads(graphs, true), drafts_of_reads(eager, false));
}

TEST_P(DraftGraph, ItsSizeIsDroppedAfterThreeFailedReplays) {
  RunnerBench bench = make_drafting_in_steps(GetParam());
  ASSERT_TRUE(bench.runner->capture().ok());
  const std::vector<TokenId> want = drafts_of_reads(bench, true);
  forward(bench, {{.ids = testing::ids(9, 1)}});
  const ForwardBatch batch =
      make_batch({{.ids = testing::ids(9, 1), .computed = 8}}, Rows::kLast, bench.runner->model().num_cache_groups());
  const GraphRunner& runner = bench.runner->runner(RunnerRole::kDraftDecode);
  const auto read = [&](bool fails) {
    bench.device->set_plan(fails ? FaultPlan{.replay_fails_at = 1} : FaultPlan{});
    const bool done = bench.runner->drafts().read({.batch = batch, .rows = count_up(1), .first_id = 0}).ok();
    EXPECT_EQ(done && bench.runner->drafts().settle().ok(), !fails);
  };
  for (const bool fails : {true, true, false, true, true}) read(fails);
  EXPECT_TRUE(runner.captured(1));  // because no three failures were consecutive
  read(true);
  EXPECT_FALSE(runner.captured(1));
  read(false);
  EXPECT_EQ(drafts_of_reads(bench, true), want);
}

INSTANTIATE_TEST_SUITE_P(Layers, DraftGraph, ::testing::ValuesIn(kLayers), name_of);

TEST(DraftStep, AGraphIsCapturedWhenItIsFirstWanted) {
  RunnerBench bench = make_drafting_in_steps("mtp-glm4-moe", CaptureMode::kLazy);
  ASSERT_TRUE(bench.runner->capture().ok());
  const GraphRunner& runner = bench.runner->runner(RunnerRole::kDraftDecode);
  EXPECT_TRUE(runner.report().captured.empty());
  drafts_of_reads(bench, true);
  EXPECT_THAT(runner.report().captured, ::testing::ElementsAre(4));
}

TEST(DraftStep, InputsThatDisagreeAreRefused) {
  RunnerBench bench = make_drafting("mtp-glm4-moe");
  const ForwardBatch batch = make_batch({{.ids = testing::ids(4)}}, Rows::kLast);
  DraftStep& step = bench.runner->drafts();
  const auto message = [&](const std::vector<std::int32_t>& rows) {
    return step.read({.batch = batch, .rows = rows}).to_string();
  };
  EXPECT_THAT(message({0, 1, 2}), HasSubstr("4 tokens with 3 hidden states"));
  EXPECT_THAT(message({0, 1, 2, 256}), HasSubstr("not among the 256 hidden states"));
  EXPECT_THAT(step.draft({.rows = std::vector<std::int32_t>{256}}).to_string(),
              HasSubstr("not among the 256 hidden states"));
  EXPECT_THAT(step.fetch(bench.runner->options().max_requests + 1).to_string(), HasSubstr("drafts are fetched"));
  RunnerBench plain = testing::make_bench("llama", testing::small_options());
  EXPECT_THAT(plain.runner->drafts().read({.batch = batch, .rows = {}}).to_string(), HasSubstr("without a next-token"));
}

}  // namespace
}  // namespace tessera
