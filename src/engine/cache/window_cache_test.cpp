// Catches: a long sequence that keeps pages outside its layers' windows; a long sequence that frees pages that are
// still read; and outputs that change because pages are freed. Models in which all layers have windows of 24 tokens,
// and models that also have a layer with full attention, are compared with a runner that keeps all pages of its
// requests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/device/testing/fake_device.h"
#include "tessera/engine/engine_test_util.h"
#include "tessera/runner/runner_test_util.h"

namespace tessera {
namespace {

constexpr std::int64_t kWindowTokens = 24;
constexpr std::int64_t kPrompt = 500;
constexpr std::int64_t kNewTokens = 120;
constexpr std::int64_t kChunk = 32;
constexpr std::int64_t kWindowPage = testing::kTestPageSize;

class WindowCache : public ::testing::TestWithParam<const char*> {
 protected:
  static EngineOptions options() {
    EngineOptions options = test::small_options();
    options.model_path = testing::data_path(std::string("goldens/") + GetParam());
    options.context_length = 1024;
    return options;
  }
  static std::unique_ptr<Engine> make(const EngineOptions& options) {
    return *Engine::create(options, FakeDevice::create({}, {.threads = 1}).value());
  }
  static Request request(std::int64_t prompt = kPrompt, std::int64_t new_tokens = kNewTokens) {
    Request made{.stop = {.max_new_tokens = new_tokens, .ignore_eos = true}};
    for (const std::int32_t id : testing::ids(prompt)) made.prompt.emplace_back(id);
    return made;
  }
};

INSTANTIATE_TEST_SUITE_P(, WindowCache, ::testing::Values("mistral-swa", "qwen2-swa"), [](const auto& name) {
  std::string text = name.param;
  std::replace(text.begin(), text.end(), '-', '_');
  return text;
});

TEST_P(WindowCache, ASequenceHoldsTheWindowAndOneMorePage) {
  const std::unique_ptr<Engine> engine = make(options());
  ASSERT_TRUE(engine->submit(request()).ok());
  const std::vector<ir::CacheGroup>& groups = engine->runner().prefill().executable().graph().cache_groups;
  std::int64_t steps = 0;
  std::int64_t most_full = 0;
  for (; !engine->idle(); ++steps) {
    ASSERT_TRUE(engine->step().ok());
    const EngineStats stats = engine->stats();
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const std::int64_t used = stats.cache_groups[g].used_pages;
      // A prompt holds its chunk's pages only during the forward. Between steps it holds no more than a generating
      // request.
      if (groups[g].window == 0) {
        most_full = std::max(most_full, used);
        continue;
      }
      EXPECT_LE(used, kWindowTokens / kWindowPage + 1) << "step " << steps;
    }
  }
  EXPECT_GT(steps, kPrompt / kChunk + kNewTokens - 1);
  const std::int64_t all_pages = (kPrompt + kNewTokens - 1 + kWindowPage - 1) / kWindowPage;
  EXPECT_EQ(most_full, groups.size() == 2 ? all_pages : 0);
}

TEST_P(WindowCache, OutputsEqualThoseWithAllPagesKept) {
  const std::unique_ptr<Engine> engine = make(options());
  Request wanted = request();
  wanted.return_hidden_states = true;
  const Completion got = test::run_one(*engine, wanted);
  ASSERT_EQ(got.output_ids.size(), static_cast<std::size_t>(kNewTokens));

  RunnerOptions keeps_all = testing::small_options();
  keeps_all.prefill_sizes = {4, 16, 32};
  keeps_all.max_tokens = kChunk;
  keeps_all.context_length = 1024;
  keeps_all.num_pages = {1024 / kWindowPage + 1};
  testing::RunnerBench bench = testing::make_captured(GetParam(), keeps_all);
  const std::size_t groups = bench.runner->prefill().executable().graph().cache_groups.size();
  testing::TestRequest all{.ids = testing::ids(kPrompt), .computed = 0};
  for (const TokenId token : got.output_ids) all.ids.push_back(token.value());
  std::vector<float> hidden;
  const std::int64_t end = kPrompt + kNewTokens - 1;  // the model never reads the last output token
  for (std::int64_t computed = 0; computed < end;) {
    const std::int64_t count = computed < kPrompt ? std::min(kChunk, kPrompt - computed) : 1;
    testing::TestRequest part{.ids = {all.ids.begin(), all.ids.begin() + computed + count}, .computed = computed};
    std::vector<float> rows(static_cast<std::size_t>(count * bench.runner->hidden_size()));
    const ForwardBatch batch = testing::make_batch({part}, testing::Rows::kLast, groups);
    ASSERT_TRUE(bench.runner->forward({.batch = batch, .sampling = {}, .hidden_states = rows}).ok());
    hidden.insert(hidden.end(), rows.begin(), rows.end());
    computed += count;
  }
  ASSERT_EQ(got.hidden_states.size(), hidden.size());
  EXPECT_EQ(std::memcmp(got.hidden_states.data(), hidden.data(), hidden.size() * sizeof(float)), 0)
      << "greatest difference " << testing::greatest_difference(got.hidden_states, hidden);
}

// Reuses a prefix after other sequences have overwritten the pages that left the window.
TEST_P(WindowCache, APrefixIsReusedWithTheSameOutputs) {
  EngineOptions cached = options();
  cached.deterministic = true;
  EngineOptions alone = cached;
  alone.disable_radix_cache = true;
  const std::unique_ptr<Engine> engine = make(cached);
  for (std::int64_t i = 0; i < 4; ++i) {
    Request shared = request(200 + 40 * i, 30);
    shared.prompt.back() = TokenId(static_cast<std::int32_t>(i));
    shared.logprobs.output = 3;
    const Completion got = test::run_one(*engine, shared);
    EXPECT_EQ(got.cached_tokens > 150, i > 0) << i;
    const Completion want = test::run_one(*make(alone), shared);
    EXPECT_EQ(got.output_ids, want.output_ids) << i;
    for (std::size_t t = 0; t < want.output_logprobs.size(); ++t)
      EXPECT_EQ(got.output_logprobs[t].token.logprob, want.output_logprobs[t].token.logprob) << i << ", token " << t;
  }
}

TEST_P(WindowCache, PreemptionChangesNoOutput) {
  EngineOptions tight = options();
  tight.deterministic = true;
  const std::unique_ptr<Engine> roomy = make(tight);
  tight.max_total_tokens = 320;
  const std::unique_ptr<Engine> engine = make(tight);
  std::vector<Request> requests;
  std::vector<std::vector<TokenId>> want;
  for (std::int32_t i = 0; i < 4; ++i) {
    Request made = request(60, 60);
    made.prompt.front() = TokenId(100 + i);
    requests.push_back(made);
    want.push_back(test::run_one(*roomy, made).output_ids);
  }
  const std::vector<Completion> got = *engine->run(requests);
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_EQ(got[i].output_ids, want[i]) << i;
  // Four sequences fit if all layers have windows, but not if one layer has full attention.
  const bool has_full = engine->stats().num_cache_groups == 2;
  EXPECT_EQ(engine->stats().preemptions > 0, has_full);
}

}  // namespace
}  // namespace tessera
