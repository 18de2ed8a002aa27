// Catches, for models with gated delta nets: a sequence that continues from the wrong state (after a chunk, after a
// preemption, or from the saved state of another prompt); a shared system prompt that is computed again for every
// request.
#include <gtest/gtest.h>

#include <algorithm>

#include "tessera/device/testing/environment.h"
#include "tessera/engine/engine.h"

namespace tessera {
namespace {

constexpr std::int64_t kSystemTokens = 96;

EngineOptions options_of(bool deterministic) {
  EngineOptions options{.model_path = testing::data_path("goldens/qwen3.5-text"),
                        .device = testing::test_device_name(),
                        .dtype = "float32"};
  options.context_length = 512;
  options.chunked_prefill_size = 256;
  options.max_running_requests = 6;
  options.page_size = 8;
  options.deterministic = deterministic;
  options.graphs.piecewise_tokens = {8, 64, 256};
  return options;
}

std::unique_ptr<Engine> make(const EngineOptions& options) {
  Result<std::unique_ptr<Engine>> engine = Engine::create(options);
  EXPECT_TRUE(engine.ok()) << engine.status().to_string();
  return engine.ok() ? *std::move(engine) : nullptr;
}

// Returns a request with the system prompt and `own` further tokens.
Request request(std::int32_t number, std::int64_t own) {
  Request made{.stop = {.max_new_tokens = 10, .ignore_eos = true}};
  for (std::int32_t i = 0; i < kSystemTokens; ++i) made.prompt.emplace_back((i * 17 + i * i + 3) % 500);
  for (std::int32_t i = 0; i < own; ++i) made.prompt.emplace_back((number * 131 + i * 29 + 7) % 500);
  return made;
}

std::vector<Request> requests(std::int32_t count) {
  std::vector<Request> made;
  for (std::int32_t i = 0; i < count; ++i) made.push_back(request(i, 9 + 5 * i));
  return made;
}

// Runs each request by itself, whole, on an engine without a prefix cache.
std::vector<std::vector<TokenId>> alone(const std::vector<Request>& all, bool deterministic) {
  EngineOptions options = options_of(deterministic);
  options.disable_radix_cache = true;
  const std::unique_ptr<Engine> engine = make(options);
  std::vector<std::vector<TokenId>> outputs;
  for (const Request& one : all) outputs.push_back((*engine->run({&one, 1}))[0].output_ids);
  return outputs;
}

class RecurrentCache : public ::testing::TestWithParam<bool> {};

// The second request stores a checkpoint of its state where its prompt diverges from the first prompt. All later
// requests continue from this checkpoint.
TEST_P(RecurrentCache, FindsASharedPromptFromTheThirdRequest) {
  const std::vector<Request> all = requests(5);
  const std::vector<std::vector<TokenId>> want = alone(all, GetParam());
  const std::unique_ptr<Engine> engine = make(options_of(GetParam()));
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Completion done = (*engine->run({&all[i], 1}))[0];
    EXPECT_EQ(done.output_ids, want[i]) << i;
    EXPECT_EQ(done.cached_tokens, i < 2 ? 0 : kSystemTokens) << i;
  }
  // A longer conversation continues from the checkpoint at the end of the shorter one.
  Request next = all[4];
  const std::vector<TokenId> answer = want[4];
  next.prompt.insert(next.prompt.end(), answer.begin(), answer.end());
  for (std::int32_t i = 0; i < 11; ++i) next.prompt.emplace_back(300 + i);
  const Completion done = (*engine->run({&next, 1}))[0];
  EXPECT_EQ(done.output_ids, alone({next}, GetParam())[0]);
  EXPECT_GT(done.cached_tokens, kSystemTokens);
}

TEST_P(RecurrentCache, ChunksPreemptionAndCompanyChangeNoToken) {
  const std::vector<Request> all = requests(12);
  const std::vector<std::vector<TokenId>> want = alone(all, GetParam());
  EngineOptions options = options_of(GetParam());
  options.chunked_prefill_size = 24;
  options.graphs.piecewise_tokens = {8, 24};
  options.max_total_tokens = 320;  // about two sequences
  const std::unique_ptr<Engine> engine = make(options);
  for (int round = 0; round < 2; ++round) {
    const std::vector<Completion> together = *engine->run(all);
    for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(together[i].output_ids, want[i]) << round << ": " << i;
  }
  EXPECT_GT(engine->stats().cached_tokens, 0);
}

// The sequences fit into the cache at first, and then grow until they no longer fit.
TEST_P(RecurrentCache, APreemptedSequenceIsComputedAgainFromItsStart) {
  std::vector<Request> all;
  for (std::int32_t i = 0; i < 4; ++i) {
    Request made = request(i, 0);
    made.prompt.erase(made.prompt.begin(), made.prompt.begin() + 70 + i);
    made.stop.max_new_tokens = 80;
    all.push_back(std::move(made));
  }
  const std::vector<std::vector<TokenId>> want = alone(all, GetParam());
  EngineOptions options = options_of(GetParam());
  options.context_length = 128;
  options.max_total_tokens = 200;
  const std::unique_ptr<Engine> engine = make(options);
  const std::vector<Completion> together = *engine->run(all);
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(together[i].output_ids, want[i]) << i;
  EXPECT_GT(engine->stats().preemptions, 0);
}

INSTANTIATE_TEST_SUITE_P(Modes, RecurrentCache, ::testing::Values(false, true),
                         [](const auto& mode) { return mode.param ? "deterministic" : "fastest"; });

// Logits are equal to the bit, wherever chunks end, and also if a row is decoded instead of prefilled.
TEST(RecurrentDeterminism, LogitsDoNotDependOnCuts) {
  Request scored = request(1, 120);
  scored.score = true;
  std::vector<std::vector<float>> logits;
  for (const std::int64_t chunk : {256, 16, 40, 7}) {
    EngineOptions options = options_of(true);
    options.chunked_prefill_size = chunk;
    options.graphs.piecewise_tokens = {chunk};
    logits.push_back((*make(options)->run({&scored, 1}))[0].logits);
    EXPECT_EQ(logits.back(), logits.front()) << "chunks of " << chunk;
  }
}

}  // namespace
}  // namespace tessera
