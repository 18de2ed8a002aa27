// Catches: rows that return to the wrong rank or to the wrong place; experts that no rank computes, or two ranks
// compute; ranks that use different graphs for one forward; an engine that waits forever for an idle or failed engine;
// requests whose results depend on other ranks' tokens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "dp_attention.h"
#include "golden.h"
#include "golden_cases.h"
#include "rank_golden.h"
#include "tessera/runner/verify/soak.h"
#include "tessera/runner/verify/verify.h"

namespace tessera {
namespace {

using testing::Engines;
using testing::Golden;
using ::testing::HasSubstr;
using testing::on_ranks;
using testing::Served;
using testing::start;

EngineOptions options_for(const Golden& golden, int ranks, int parts, int nodes = 1) {
  EngineOptions options = testing::rank_golden_options(golden);
  options.replicas = ranks;
  options.ep_size = parts;
  options.nnodes = nodes;
  options.dp_attention = true;
  options.graphs.piecewise_tokens = {4, 16, testing::kRankChunk};
  return options;
}

void expect_scores(const Golden& golden, const char* name, std::size_t prompt, const Completion& scored) {
  const double distance = testing::distance(scored.logits, golden.stored_rows(prompt)).absolute;
  std::printf("%s, prompt %zu: %.2e\n", name, prompt, distance);
  EXPECT_LE(distance, 1e-4) << "prompt " << prompt;
}

struct Case {
  const char* name;
  int ranks;
  int parts;  // number of parts that the experts are divided into
  int nodes = 1;
};

class DpAttentionGoldens : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!testing::has_devices_for(GetParam().ranks)) GTEST_SKIP() << "needs " << GetParam().ranks << " GPUs";
  }
};

// Every rank has different prompts, so one rank computes a prompt while another decodes. The last rank first scores all
// its tokens, and has no requests after that. No forward runs eagerly.
TEST_P(DpAttentionGoldens, EveryRankHasRequestsOfItsOwn) {
  const Golden golden = testing::read_golden(GetParam().name);
  Result<Engines> engines = start(options_for(golden, GetParam().ranks, GetParam().parts, GetParam().nodes));
  ASSERT_TRUE(engines.ok()) << engines.status().to_string();
  const auto ranks = static_cast<std::size_t>(GetParam().ranks);
  const std::vector<Request> greedy = testing::greedy_requests(golden);
  const std::vector<Request> scores = testing::score_requests(golden);
  std::vector<std::vector<Request>> requests(ranks);
  for (std::size_t i = 0; i < greedy.size(); ++i) requests[i % (ranks - 1)].push_back(greedy[i]);
  requests.back() = scores;
  const Served served(*engines, requests);
  for (std::size_t i = 0; i < greedy.size(); ++i)
    EXPECT_EQ(served.of(i % (ranks - 1))[i / (ranks - 1)].output_ids, golden.greedy[i]) << "prompt " << i;
  for (std::size_t i = 0; i < scores.size(); ++i) expect_scores(golden, GetParam().name, i, served.of(ranks - 1)[i]);
  for (const std::unique_ptr<Engine>& engine : *engines)
    for (const auto& [key, forwards] : engine->runner().counters().by_key)
      EXPECT_NE(key.runner, RunnerKind::kEager) << key.size;
}

// The other ranks join every forward with padding only (idle forwards).
TEST_P(DpAttentionGoldens, OneRankHasAllRequests) {
  const Golden golden = testing::read_golden(GetParam().name);
  Result<Engines> engines = start(options_for(golden, GetParam().ranks, GetParam().parts, GetParam().nodes));
  ASSERT_TRUE(engines.ok()) << engines.status().to_string();
  std::vector<std::vector<Request>> requests(static_cast<std::size_t>(GetParam().ranks));
  requests[1] = testing::greedy_requests(golden);
  const Served served(*engines, requests);
  for (std::size_t i = 0; i < golden.greedy.size(); ++i)
    EXPECT_EQ(served.of(1)[i].output_ids, golden.greedy[i]) << "prompt " << i;
  EXPECT_EQ(engines->front()->stats().steps, 0);
}

INSTANTIATE_TEST_SUITE_P(Mixtures, DpAttentionGoldens,
                         ::testing::Values(Case{"mixtral", 2, 2}, Case{"qwen3-moe", 2, 2}, Case{"qwen3-moe", 2, 1},
                                           Case{"qwen3-moe", 4, 2}, Case{"gpt-oss", 2, 2}, Case{"deepseek-v3", 2, 2},
                                           Case{"gemma4-moe", 2, 2}, Case{"qwen3-next", 2, 2},
                                           Case{"qwen3-moe", 2, 2, 2}, Case{"qwen3-moe", 4, 2, 2},
                                           Case{"deepseek-v3", 4, 4, 4}),
                         [](const auto& test) {
                           std::string name = test.param.name;
                           for (char& c : name)
                             if (c == '-') c = '_';
                           name += "_" + std::to_string(test.param.ranks) + "_" + std::to_string(test.param.parts);
                           return test.param.nodes == 1 ? name
                                                        : name + "_" + std::to_string(test.param.nodes) + "nodes";
                         });

class DpAttention : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!testing::has_devices_for(2)) GTEST_SKIP() << "needs 2 GPUs";
  }
};

// Both ranks run the verification at the same time. Each rank replays its captured sizes, and compares the results with
// runs in which every value has its own memory. It also compares random batches with runs without graphs.
TEST_F(DpAttention, EveryRankEqualsItsIsolatedRun) {
  Result<Engines> engines = start(options_for(testing::read_golden("qwen3-moe"), 2, 2));
  ASSERT_TRUE(engines.ok()) << engines.status().to_string();
  const Status same = on_ranks(2, [&](int r) -> Status {
    ModelRunner& runner = (*engines)[static_cast<std::size_t>(r)]->runner();
    if (!TRY(verify(runner, /*show_progress=*/false)).equal()) return internal_error("a captured size differs");
    const SoakReport report = TRY(soak(runner, {.batches = 40}));
    return report.num_failures == 0 ? ok_status() : internal_error(report.failures.front());
  });
  EXPECT_TRUE(same.ok()) << same.to_string();
}

// One rank has two requests and the other rank has one, so their steps have different numbers of rows and of drafts.
TEST_F(DpAttention, DraftsFromTheTextChangeNothing) {
  for (const char* name : {"qwen3-moe", "qwen3-next", "deepseek-v3"}) {
    const Golden golden = testing::read_golden(name);
    std::vector<Request> all = testing::greedy_requests(golden);
    ASSERT_GE(all.size(), 3U);
    for (Request& request : all) {
      request.sampling.allowed_tokens = {TokenId(5), TokenId(6)};
      request.stop.max_new_tokens = request.stop.min_new_tokens = 20;
    }
    const std::vector<std::vector<Request>> requests{{all[0], all[1]}, {all[2]}};
    EngineOptions options = options_for(golden, 2, 2);
    options.deterministic = true;
    options.max_running_requests = 16;
    Result<Engines> plain = start(options);
    ASSERT_TRUE(plain.ok()) << plain.status().to_string();
    options.drafts.source = DraftSource::kText;
    Result<Engines> drafting = start(options);
    ASSERT_TRUE(drafting.ok()) << drafting.status().to_string();
    const Served want(*plain, requests);
    const Served got(*drafting, requests);
    for (std::size_t rank = 0; rank < 2; ++rank) {
      for (std::size_t i = 0; i < requests[rank].size(); ++i)
        EXPECT_EQ(got.of(rank)[i].output_ids, want.of(rank)[i].output_ids) << name << ", rank " << rank;
      EXPECT_GT((*drafting)[rank]->stats().drafts.kept, 3) << name << ", rank " << rank;
    }
  }
}

// With two-batch overlap, the rows of one half of a batch are gathered while the other half is computed.
TEST_F(DpAttention, EqualsItsIsolatedRunInHalves) {
  const Golden golden = testing::read_golden("qwen3-moe");
  for (const int nodes : {1, 2}) {
    SCOPED_TRACE(nodes);
    EngineOptions options = options_for(golden, 2, 2, nodes);
    options.two_batch_overlap = true;
    options.two_batch_least_tokens = 8;
    Result<Engines> engines = start(options);
    ASSERT_TRUE(engines.ok()) << engines.status().to_string();
    std::size_t runs = 0;
    for (const CompiledPart& part : engines->front()->runner().prefill().executable().parts())
      runs += part.program->halves.size();
    EXPECT_GE(runs, 2U);
    const std::vector<Request> all = testing::greedy_requests(golden);
    const Served served(*engines, {all, {all[1]}});
    for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(served.of(0)[i].output_ids, golden.greedy[i]) << i;
    EXPECT_EQ(served.of(1)[0].output_ids, golden.greedy[1]);
  }
}

// Each rank pads its eager forward to the number of tokens of the rank that has the most.
TEST_F(DpAttention, RunsWithoutGraphs) {
  const Golden golden = testing::read_golden("qwen3-moe");
  EngineOptions options = options_for(golden, 2, 2);
  options.graphs.mode = GraphMode::kOff;
  Result<Engines> engines = start(options);
  ASSERT_TRUE(engines.ok()) << engines.status().to_string();
  const std::vector<Request> all = testing::greedy_requests(golden);
  const Served served(*engines, {all, {all[1]}});
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(served.of(0)[i].output_ids, golden.greedy[i]) << i;
  EXPECT_EQ(served.of(1)[0].output_ids, golden.greedy[1]);
}

// One rank leaves. The other rank's requests fail at once, and the error names the rank that has left.
TEST_F(DpAttention, ARankThatEndsFailsTheOthersRequests) {
  const Golden golden = testing::read_golden("qwen3-moe");
  Result<Engines> engines = start(options_for(golden, 2, 2));
  ASSERT_TRUE(engines.ok()) << engines.status().to_string();
  engines->front()->peers().leave(engines->front()->runner());
  const Status failed = (*engines)[1]->run(testing::greedy_requests(golden)).status();
  EXPECT_EQ(failed.code(), StatusCode::kDeviceLost);
  EXPECT_THAT(failed.message(), HasSubstr("rank 0 of 2 left the group: its engine ends"));
  EXPECT_FALSE((*engines)[1]->health().ok());
}

TEST_F(DpAttention, RefusesWhatDoesNotFit) {
  const Golden golden = testing::read_golden("qwen3-moe");
  const auto refusal = [](const EngineOptions& options) { return start(options).status().message(); };
  EXPECT_THAT(refusal(options_for(golden, 2, 3)), HasSubstr("ep_size: 3 is not accepted"));
  EngineOptions sliced = options_for(golden, 2, 1);
  sliced.tp_size = 2;
  EXPECT_THAT(refusal(sliced), HasSubstr("enable_dp_attention with sliced attention or pipeline stages"));
  EngineOptions lazy = options_for(golden, 2, 1);
  lazy.graphs.capture = CaptureMode::kLazy;
  EXPECT_THAT(refusal(lazy), HasSubstr("enable_dp_attention captures every size at the start"));
  EngineOptions dense = options_for(golden, 2, 1);
  dense.model_path = testing::golden_path("llama");
  EXPECT_THAT(refusal(dense), HasSubstr("enable_dp_attention: the model has no experts"));
}

}  // namespace
}  // namespace tessera
