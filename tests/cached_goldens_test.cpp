// Catches: a family that reads keys, latents, windows or states of other tokens if the beginning of a prompt comes from
// the prefix cache, or if a request was preempted and is computed again. The answer then differs from Hugging Face's.
#include <gtest/gtest.h>

#include "golden.h"
#include "golden_cases.h"
#include "tessera/engine/engine.h"

namespace tessera {
namespace {

using testing::Golden;
using testing::read_golden;

constexpr std::int64_t kChunk = 64;
constexpr std::int64_t kGreedyTokens = 12;

std::unique_ptr<Engine> make(const Golden& golden, std::int64_t running, bool cached) {
  EngineOptions options{.model_path = golden.folder, .device = testing::test_device_name(), .dtype = "float32"};
  options.context_length = 1600;
  options.chunked_prefill_size = kChunk;
  options.max_running_requests = running;
  options.page_size = 4;
  options.disable_radix_cache = !cached;
  options.graphs.piecewise_tokens = {4, 16, kChunk};
  Result<std::unique_ptr<Engine>> engine = Engine::create(options);
  EXPECT_TRUE(engine.ok()) << engine.status().to_string();
  return engine.ok() ? *std::move(engine) : nullptr;
}

// Returns a request whose prompt is golden prompt i followed by the first `known` tokens of its golden answer. The
// engine must generate the rest of the answer.
Request continued(const Golden& golden, std::size_t i, std::int64_t known) {
  Request request{.prompt = golden.prompts[i], .stop = {.max_new_tokens = kGreedyTokens - known, .ignore_eos = true}};
  request.prompt.insert(request.prompt.end(), golden.greedy[i].begin(), golden.greedy[i].begin() + known);
  return request;
}

std::vector<TokenId> tokens_from(const Golden& golden, std::size_t i, std::int64_t known) {
  return {golden.greedy[i].begin() + known, golden.greedy[i].end()};
}

class CachedGoldens : public ::testing::TestWithParam<const char*> {};

TEST_P(CachedGoldens, GreedyTokensFromThePrefixCache) {
  const Golden golden = read_golden(GetParam());
  const std::unique_ptr<Engine> engine = make(golden, 16, /*cached=*/true);
  ASSERT_NE(engine, nullptr);
  // In the first round nothing is cached. In the second round the whole prompts are cached. In the third round a prompt
  // includes the first five tokens of its answer, so its last page is not full.
  for (const auto& [round, known] : {std::pair{0, 0}, {1, 0}, {2, 5}}) {
    std::vector<Request> requests;
    for (std::size_t i = 0; i < golden.prompts.size(); ++i) requests.push_back(continued(golden, i, known));
    const Result<std::vector<Completion>> done = engine->run(requests);
    ASSERT_TRUE(done.ok()) << done.status().to_string();
    for (std::size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ((*done)[i].output_ids, tokens_from(golden, i, known)) << "round " << round << " prompt " << i;
      if (round == 0 || std::ssize(golden.prompts[i]) <= kChunk) continue;
      EXPECT_GE((*done)[i].cached_tokens, kChunk) << "round " << round << " prompt " << i;
    }
  }
}

// One request runs at a time. Requests of higher priority preempt it twice: while its prompt is computed (if that takes
// more than two forwards), and while it decodes.
TEST_P(CachedGoldens, GreedyTokensAfterPreemption) {
  const Golden golden = read_golden(GetParam());
  for (const bool cached : {false, true}) {
    const std::unique_ptr<Engine> engine = make(golden, 1, cached);
    ASSERT_NE(engine, nullptr);
    for (std::size_t i = 0; i < golden.prompts.size(); ++i) {
      const std::int64_t before = engine->stats().preemptions;
      const RequestId id = *engine->submit(continued(golden, i, 0));
      for (std::int32_t step = 0; !engine->idle(); ++step) {
        if (step == 2 || step == 8) {
          Request urgent{.prompt = {}, .stop = {.max_new_tokens = 2, .ignore_eos = true}, .priority = 1};
          for (std::int32_t t = 0; t < 40; ++t) urgent.prompt.emplace_back((step * 131 + t * 29 + t * t) % 500);
          ASSERT_TRUE(engine->submit(urgent).ok());
        }
        ASSERT_TRUE(engine->step().ok());
      }
      const std::optional<Completion> done = engine->take(id);
      ASSERT_TRUE(done);
      EXPECT_EQ(done->output_ids, golden.greedy[i]) << "prompt " << i << (cached ? " cached" : "");
      EXPECT_EQ(engine->stats().preemptions - before, 2) << "prompt " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Dense, CachedGoldens, ::testing::ValuesIn(testing::kDenseGoldens), testing::case_name);
INSTANTIATE_TEST_SUITE_P(Experts, CachedGoldens, ::testing::ValuesIn(testing::kMixtureGoldens), testing::case_name);
INSTANTIATE_TEST_SUITE_P(Latent, CachedGoldens, ::testing::ValuesIn(testing::kLatentGoldens), testing::case_name);
INSTANTIATE_TEST_SUITE_P(Recurrent, CachedGoldens, ::testing::ValuesIn(testing::kRecurrentGoldens), testing::case_name);
INSTANTIATE_TEST_SUITE_P(RecurrentExperts, CachedGoldens, ::testing::ValuesIn(testing::kRecurrentMixtureGoldens),
                         testing::case_name);

}  // namespace
}  // namespace tessera
