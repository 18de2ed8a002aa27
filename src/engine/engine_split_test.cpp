// Catches: an eager forward for a chunk that exceeds the largest graph but could be cut; a cut chunk with other results
// than an uncut one; and log-probabilities of a prompt that are lost or doubled at a cut.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/engine/engine_test_util.h"

namespace tessera {
namespace {

using test::make_engine;
using test::request;

class SplitChunks : public test::EngineRuns {
 protected:
  static EngineOptions options() {
    EngineOptions options = test::small_options();
    options.context_length = 2048;
    options.chunked_prefill_size = 2048;
    options.graphs.piecewise_tokens = {64, 512};
    options.graphs.measure_costs = false;
    return options;
  }
};
INSTANTIATE_TEST_SUITE_P(, SplitChunks, ::testing::Bool(), test::overlap_name);

TEST_P(SplitChunks, AreReplayedAndGiveTheSameTokens) {
  Request wanted = request(1400, 3);
  wanted.logprobs.prompt = 1;
  const Request beside = request(700, 20, 5);
  const std::vector<Request> requests = {beside, wanted};

  const std::unique_ptr<Engine> cut = make(options());
  ASSERT_NE(cut, nullptr);
  const Result<std::vector<Completion>> in_parts = cut->run(requests);
  ASSERT_TRUE(in_parts.ok()) << in_parts.status().to_string();
  const EngineStats stats = cut->stats();
  EXPECT_GE(stats.split_chunks, 3) << "2100 tokens in forwards of at most 512, one of which is full by itself";
  for (const auto& [key, count] : stats.forwards.by_key)
    EXPECT_NE(key.runner, RunnerKind::kEager) << reason_text(key.reason) << ": " << count.tokens << " tokens";
  EXPECT_EQ(stats.forwards.of_size(RunnerKind::kPrefill, 512).forwards, 4);
  EXPECT_EQ(stats.forwards.of_size(RunnerKind::kPrefill, 64).forwards, 1) << "the rest, beside a decode";

  EngineOptions eager = options();
  eager.graphs.disable_cuda_graph = true;
  const std::unique_ptr<Engine> whole = make(eager);
  ASSERT_NE(whole, nullptr);
  const Result<std::vector<Completion>> at_once = whole->run(requests);
  ASSERT_TRUE(at_once.ok()) << at_once.status().to_string();
  EXPECT_EQ(whole->stats().split_chunks, 0);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ((*in_parts)[i].output_ids, (*at_once)[i].output_ids);
    const std::vector<TokenLogprobs>& got = (*in_parts)[i].prompt_logprobs;
    const std::vector<TokenLogprobs>& want = (*at_once)[i].prompt_logprobs;
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t t = 1; t < got.size(); ++t) ASSERT_NEAR(got[t].token.logprob, want[t].token.logprob, 1e-4) << t;
  }
}

}  // namespace
}  // namespace tessera
