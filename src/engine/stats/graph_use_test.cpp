// Catches: a request's report that contains forwards of other requests or lacks some of its own forwards; forwards that
// are counted in the wrong phase; a feature whose forwards run without graphs although nothing reports it; and a list
// of graphs that is not updated when a size is captured or dropped.
#include "tessera/engine/stats/graph_use.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/device/testing/fake_device.h"
#include "tessera/engine/engine_test_util.h"
#include "tessera/runner/capture/graph_failure.h"

namespace tessera {
namespace {

using test::make_engine;
using test::request;
using test::run_one;
using test::small_options;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Returns "phase runner size reason forwards tokens padding" for each entry.
std::vector<std::string> shown(const std::vector<GraphUse>& uses) {
  std::vector<std::string> lines;
  for (const GraphUse& use : uses) {
    lines.push_back(std::string(forward_phase_name(use.phase)) + " " + std::string(runner_kind_name(use.how.runner)) +
                    " " + std::to_string(use.how.size) + " " + std::string(reason_name(use.how.reason)) + " " +
                    std::to_string(use.count.forwards) + " " + std::to_string(use.count.tokens) + " " +
                    std::to_string(use.count.padding));
  }
  return lines;
}

class GraphUseOfRequests : public test::EngineRuns {};
INSTANTIATE_TEST_SUITE_P(, GraphUseOfRequests, ::testing::Bool(), test::overlap_name);

TEST(GraphUse, ForwardsWithEqualDecisionsAreOneEntry) {
  std::vector<GraphUse> uses;
  const Decision padded{.runner = RunnerKind::kPrefill, .size = 16, .padding = 3, .reason = Reason::kPaddedToSize};
  add_graph_use(uses, ForwardPhase::kPrefill, padded, 13);
  add_graph_use(uses, ForwardPhase::kDecode,
                {.runner = RunnerKind::kEager, .size = 5, .reason = Reason::kGraphsDisabled}, 1);
  add_graph_use(uses, ForwardPhase::kMixed, padded, 1);
  add_graph_use(uses, ForwardPhase::kDecode,
                {.runner = RunnerKind::kEager, .size = 6, .reason = Reason::kGraphsDisabled}, 1);
  EXPECT_THAT(shown(uses),
              ElementsAre("prefill prefill 16 padded_to_size 1 13 3", "decode eager 0 graphs_disabled 2 2 0",
                          "mixed prefill 16 padded_to_size 1 1 3"));
}

TEST_P(GraphUseOfRequests, GraphUseIsReportedWhereARequestAsks) {
  const std::unique_ptr<Engine> engine = make();
  Request asked = request(40, 4);
  EXPECT_THAT(run_one(*engine, asked).graph_uses, IsEmpty());
  engine->flush_prefix_cache();
  asked.return_graph_info = true;
  EXPECT_THAT(shown(run_one(*engine, asked).graph_uses),
              ElementsAre("prefill prefill 32 exact_size 1 32 0", "prefill prefill 16 padded_to_size 1 8 8",
                          "decode decode 1 exact_size 3 3 0"));
}

// Runs three requests together: one that decodes, one with a long prompt and log-probabilities, and one with embeddings
// instead of ids.
TEST_P(GraphUseOfRequests, MixedBatchesLogprobsAndEmbeddingsRunOnGraphs) {
  const std::unique_ptr<Engine> engine = make();
  Request first = request(10, 12);
  first.return_graph_info = true;
  Request with_logprobs = request(44, 3, 2);
  with_logprobs.logprobs = {.output = 2, .prompt = 1};
  with_logprobs.return_graph_info = true;
  Request embedded = request(7, 2, 3);
  embedded.input_embeds.resize(embedded.prompt.size() * static_cast<std::size_t>(engine->config().hidden_size), 0.125F);
  embedded.return_graph_info = true;
  const Result<std::vector<Completion>> done = engine->run(std::vector<Request>{first, with_logprobs, embedded});
  ASSERT_TRUE(done.ok()) << done.status().to_string();
  bool mixed = false;
  for (std::size_t i = 0; i < done->size(); ++i) {
    std::int64_t tokens = 0;
    for (const GraphUse& use : (*done)[i].graph_uses) {
      EXPECT_NE(use.how.runner, RunnerKind::kEager) << "request " << i << ": " << shown((*done)[i].graph_uses).back();
      mixed = mixed || use.phase == ForwardPhase::kMixed;
      tokens += use.count.tokens;
    }
    // No forward has to read the request's last token, because the request ends when this token is sampled. However, a
    // step that was scheduled before the request ended may have read it.
    const std::int64_t least = (*done)[i].prompt_tokens + std::ssize((*done)[i].output_ids) - 1;
    EXPECT_THAT(tokens, ::testing::AllOf(::testing::Ge(least), ::testing::Le(least + 1))) << "request " << i;
  }
  EXPECT_TRUE(mixed) << "no prompt was computed beside a decoding row: this test shows nothing";
}

TEST_P(GraphUseOfRequests, AFallbackHasItsReason) {
  EngineOptions options = small_options();
  options.graphs.piecewise_tokens = {4, 16};
  const std::unique_ptr<Engine> engine = make(options);
  Request asked = request(20, 1);
  asked.return_graph_info = true;
  EXPECT_THAT(shown(run_one(*engine, asked).graph_uses), ElementsAre("prefill eager 0 above_largest_size 1 20 0"));
}

// If a start fails for lack of memory, the error's advice depends on whether graphs caused the failure.
// is_graph_failure() tells from the error's context whether graphs were the cause.
TEST(StartFailure, CompilingAndCapturingAreDistinguished) {
  int of_graphs = 0;
  int of_others = 0;
  for (std::int64_t n = 1;; ++n) {
    Result<std::unique_ptr<FakeDevice>> device = FakeDevice::create({.out_of_memory_at = n});
    ASSERT_TRUE(device.ok()) << device.status().to_string();
    EngineOptions options = small_options();
    options.graphs.piecewise_tokens = {4};
    options.graphs.decode_batches = {1};
    const FakeDevice& fake = **device;
    const Result<std::unique_ptr<Engine>> engine = Engine::create(options, *std::move(device));
    if (engine.ok() && fake.counts().faults == 0) break;  // n is past the last allocation
    if (engine.ok()) continue;                            // the start succeeded, because a size was dropped
    ++(is_graph_failure(engine.status()) ? of_graphs : of_others);
  }
  EXPECT_GT(of_others, 0) << "no room for weights is not of graphs";
  EXPECT_GT(of_graphs, 0);
}

TEST(GraphInventory, FollowsSizesBoundInService) {
  EngineOptions options = small_options();
  options.graphs.piecewise_tokens = {4, 16};
  const std::unique_ptr<Engine> engine = make_engine(options);
  const std::shared_ptr<const GraphInventory> before = engine->stats().graphs;
  EXPECT_THAT(before->prefill.captured, ElementsAre(4, 16));
  EXPECT_THAT(before->prefill.pending, IsEmpty());
  EXPECT_EQ(before->prefill.graphs, 2 * before->prefill.pieces);
  EXPECT_EQ(before->decode.graphs, std::ssize(before->decode.captured));
  EXPECT_EQ(before->prefill.split_ops, engine->config().num_hidden_layers);
  run_one(*engine, request(4, 1));
  run_one(*engine, request(20, 1));
  const std::shared_ptr<const GraphInventory> after = engine->stats().graphs;
  EXPECT_EQ(after->prefill.shape_compiles, before->prefill.shape_compiles + 1) << "of 20 tokens, eagerly";
  EXPECT_EQ(after->memory[MemoryUse::kArena], engine->runner().memory()[MemoryUse::kArena]);
  EXPECT_EQ(engine->stats().graphs, after) << "made anew although nothing has changed";
}

}  // namespace
}  // namespace tessera
