// Catches: bad input that reaches a forward; texts that depend on the other requests of the batch; texts that end too
// early or too late; and a failure of one request that makes other requests fail.
#include "tessera/engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tessera/engine/engine_test_util.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using test::EngineRuns;
using test::make_engine;
using test::request;
using test::run_one;
using test::sampled;
using test::small_options;

// While an object exists, the runner refuses forwards of more than `max_tokens` tokens, as if they failed in service.
class ForwardFault {
 public:
  ForwardFault(Engine& engine, std::int64_t max_tokens)
      : limit_(const_cast<RunnerOptions&>(engine.runner().options()).max_tokens), saved_(limit_) {
    limit_ = max_tokens;
  }
  ~ForwardFault() { limit_ = saved_; }

 private:
  std::int64_t& limit_;
  std::int64_t saved_;
};

INSTANTIATE_TEST_SUITE_P(, EngineRuns, ::testing::Bool(), test::overlap_name);

TEST(EngineSubmit, RefusesBadInputByFieldAndValue) {
  const std::unique_ptr<Engine> engine = make_engine();
  const auto with = [](Request r, auto change) {
    change(r);
    return r;
  };
  const struct {
    Request request;
    const char* message;
  } cases[] = {
      {request(0, 1), "the prompt is empty; at least one token is needed"},
      {with(request(3, 1), [](Request& r) { r.prompt[1] = TokenId(512); }),
       "prompt token 1 has id 512; accepted are 0 to 511"},
      {with(request(3, 1), [](Request& r) { r.prompt[2] = TokenId(-1); }),
       "prompt token 2 has id -1; accepted are 0 to 511"},
      {request(3, -5), "max_new_tokens is -5; accepted is 0 or more"},
      {request(64, 1), "the prompt has 64 tokens, which is too long for a context of 64"},
      {request(65, 1), "the prompt has 65 tokens, which is too long for a context of 64"},
      {with(request(65, 1), [](Request& r) { r.score = true; }),
       "the prompt has 65 tokens, which is too long for a context of 64"},
      {with(request(3, 1), [](Request& r) { r.sampling.temperature = -1; }),
       "temperature is -1; accepted is 0 (greedy) or more"},
      {with(request(3, 1), [](Request& r) { r.sampling.top_p = 0; }),
       "top_p is 0; accepted is more than 0 and at most 1"},
      {with(request(3, 1), [](Request& r) { r.sampling.top_k = -2; }), "top_k is -2; accepted is 0 (all) or more"},
  };
  for (const auto& c : cases) {
    const Result<RequestId> id = engine->submit(c.request);
    EXPECT_EQ(id.status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(id.status().message(), c.message);
  }
  EXPECT_TRUE(engine->idle());
  EXPECT_THAT(run_one(*engine, request(3, 2)).output_ids, SizeIs(2));
}

TEST(EngineSubmit, AWholeContextFitsTheSmallestCache) {
  EngineOptions options = small_options();
  options.max_running_requests = 1;
  options.context_length = 61;  // not a multiple of the page size
  const std::unique_ptr<Engine> engine = make_engine(options);
  EXPECT_EQ(engine->runner().options().num_pages.at(0), 8 + 1);
  EXPECT_THAT(run_one(*engine, request(20, 41)).output_ids, SizeIs(41));
}

TEST_P(EngineRuns, OnlyComputedPromptTokensCountAsPrefill) {
  const std::unique_ptr<Engine> engine = make();
  run_one(*engine, request(41, 5));
  const PrefillWork first = engine->stats().prefill;
  EXPECT_EQ(first.tokens, 41) << "in two chunks; decodes do not count";
  EXPECT_GT(first.microseconds, 0);
  run_one(*engine, request(41, 5));
  EXPECT_EQ(engine->stats().prefill.tokens, 41 + 1) << "five pages of 8 tokens are cached";
  EXPECT_GE(engine->stats().prefill.microseconds, first.microseconds);
}

TEST_P(EngineRuns, TextsEndAtTheirLimitAndAtTheContexts) {
  const std::unique_ptr<Engine> engine = make();
  for (const std::int64_t count : {1, 2, 7}) {
    const Completion done = run_one(*engine, request(5, count));
    EXPECT_THAT(done.output_ids, SizeIs(count));
    EXPECT_EQ(done.finish, FinishReason::kLength);
    EXPECT_EQ(done.prompt_tokens, 5);
  }
  const Completion capped = run_one(*engine, request(60, 100));
  EXPECT_THAT(capped.output_ids, SizeIs(4)) << "prompt and output fill the context";
  EXPECT_EQ(capped.finish, FinishReason::kLength);
  EXPECT_THAT(run_one(*engine, request(63, 100)).output_ids, SizeIs(1));
}

TEST_P(EngineRuns, AnEndTokenStopsTheTextAndIsHidden) {
  // The checkpoint's only end token is 2. The test searches for a seed with which that token is sampled.
  const std::unique_ptr<Engine> engine = make();
  bool stopped = false;
  for (std::int64_t seed = 0; seed < 200 && !stopped; ++seed) {
    Request free = sampled(4, 50, seed);
    free.sampling.temperature = 3;
    const std::vector<TokenId> all = run_one(*engine, free).output_ids;
    const auto end = std::find(all.begin(), all.end(), TokenId(2));
    if (end == all.end()) continue;
    free.stop.ignore_eos = false;
    const Completion done = run_one(*engine, free);
    EXPECT_EQ(done.finish, FinishReason::kStop);
    EXPECT_EQ(done.output_ids, std::vector<TokenId>(all.begin(), end));
    stopped = true;
  }
  EXPECT_TRUE(stopped);
}

TEST_P(EngineRuns, SameSeedSameTextWhateverTheBatch) {
  const std::unique_ptr<Engine> engine = make();
  const std::vector<Request> requests = {sampled(5, 20, 11), request(33, 12),    sampled(17, 9, 12),
                                         sampled(5, 20, 13), sampled(9, 15, 11), request(1, 30)};
  const Result<std::vector<Completion>> together = engine->run(requests);
  ASSERT_TRUE(together.ok()) << together.status().to_string();
  for (std::size_t i = 0; i < requests.size(); ++i)
    EXPECT_EQ(run_one(*engine, requests[i]).output_ids, (*together)[i].output_ids) << i;
  EXPECT_NE((*together)[0].output_ids, (*together)[3].output_ids) << "another seed, another text";
  EXPECT_EQ(make()->run(requests)->at(4).output_ids, (*together)[4].output_ids) << "in another engine";
}

TEST_P(EngineRuns, ASeedIsDrawnAndReturned) {
  const std::unique_ptr<Engine> engine = make();
  EXPECT_EQ(run_one(*engine, sampled(5, 4, -77)).seed, -77);
  Request unseeded = sampled(5, 20, 0);
  unseeded.sampling.seed.reset();
  const Completion first = run_one(*engine, unseeded);
  const Completion second = run_one(*engine, unseeded);
  EXPECT_NE(first.seed, second.seed);
  EXPECT_NE(first.output_ids, second.output_ids);
  EXPECT_EQ(run_one(*engine, sampled(5, 20, first.seed)).output_ids, first.output_ids);
  EXPECT_EQ(run_one(*make(), unseeded).seed, first.seed) << "random_seed gives the same drawn seeds";
}

TEST_P(EngineRuns, ScoringReturnsEveryPromptTokensLogits) {
  const std::unique_ptr<Engine> engine = make();
  Request score = request(40, 5);  // more than a chunk
  score.score = true;
  const Completion done = run_one(*engine, score);
  EXPECT_EQ(done.logits.size(), 40u * 512);
  EXPECT_THAT(done.output_ids, IsEmpty());
  EXPECT_EQ(done.finish, FinishReason::kLength);
  // The token with the greatest logit in the last row is the one that generation chooses.
  const auto row = done.logits.end() - 512;
  EXPECT_THAT(run_one(*engine, request(40, 1)).output_ids,
              ElementsAre(TokenId(static_cast<std::int32_t>(std::max_element(row, done.logits.end()) - row))));
  Request whole = request(64, 1);
  whole.score = true;
  EXPECT_EQ(run_one(*engine, whole).logits.size(), 64u * 512) << "a prompt that fills the context can be scored";
}

TEST_P(EngineRuns, EventsCarryTheTokensInOrder) {
  const std::unique_ptr<Engine> engine = make();
  const std::vector<Request> requests = {request(5, 4), request(9, 7, 2), sampled(3, 5, 8)};
  std::map<std::size_t, std::vector<TokenId>> seen;
  std::map<std::size_t, int> ends;
  const Result<std::vector<Completion>> done = engine->run(requests, [&](std::size_t index, const RequestEvent& event) {
    EXPECT_EQ(ends[index], 0) << "an event after the end";
    if (event.token) seen[index].push_back(*event.token);
    ends[index] += event.finish != FinishReason::kNone ? 1 : 0;
  });
  ASSERT_TRUE(done.ok());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(seen[i], (*done)[i].output_ids) << i;
    EXPECT_EQ(ends[i], 1);
  }
}

TEST_P(EngineRuns, CancellingEndsARequestAndReturnsItsPages) {
  const std::unique_ptr<Engine> engine = make();
  const std::vector<TokenId> want = run_one(*engine, request(6, 10)).output_ids;
  const RequestId running = *engine->submit(request(20, 30));
  const RequestId kept = *engine->submit(request(6, 10));
  const RequestId waiting = *engine->submit(request(20, 30, 2));
  ASSERT_TRUE(engine->step().ok());
  ASSERT_TRUE(engine->step().ok());
  engine->cancel(running);
  engine->cancel(waiting);
  engine->cancel(RequestId(999));
  while (!engine->idle()) {
    const Result<std::span<RequestEvent>> events = engine->step();
    ASSERT_TRUE(events.ok());
    for (const RequestEvent& event : *events) EXPECT_EQ(event.request, kept);
  }
  EXPECT_EQ(engine->take(running)->finish, FinishReason::kCancelled);
  EXPECT_EQ(engine->take(waiting)->finish, FinishReason::kCancelled);
  EXPECT_EQ(engine->take(running), std::nullopt) << "once";
  EXPECT_EQ(engine->take(kept)->output_ids, want);
  // These requests together need every page of the cache.
  EXPECT_TRUE(engine->run(std::vector<Request>(4, request(40, 24))).ok());
}

TEST_P(EngineRuns, AFailedForwardFailsItsOwnRequestsOnly) {
  const std::unique_ptr<Engine> engine = make();
  const std::vector<TokenId> want = run_one(*engine, request(20, 5)).output_ids;
  engine->flush_prefix_cache();
  const RequestId first = *engine->submit(request(20, 5));
  const RequestId second = *engine->submit(request(9, 5, 2));
  {
    const ForwardFault fault(*engine, 8);
    const Result<std::span<RequestEvent>> events = engine->step();
    ASSERT_TRUE(events.ok()) << "the engine itself is fine";
    ASSERT_THAT(*events, SizeIs(2));
    for (const RequestEvent& event : *events) {
      EXPECT_EQ(event.finish, FinishReason::kError);
      EXPECT_THAT(event.error.message(), HasSubstr("at most 8 are accepted"));
    }
  }
  EXPECT_TRUE(engine->idle());
  EXPECT_EQ(engine->take(first)->finish, FinishReason::kError);
  EXPECT_EQ(engine->take(second)->finish, FinishReason::kError);
  EXPECT_EQ(run_one(*engine, request(20, 5)).output_ids, want);
  EXPECT_TRUE(engine->run(std::vector<Request>(4, request(40, 24))).ok()) << "their pages are back";
}

TEST_P(EngineRuns, RunReportsTheFailureOfItsRequests) {
  const std::unique_ptr<Engine> engine = make();
  const Request r = request(20, 5);
  {
    const ForwardFault fault(*engine, 8);
    EXPECT_THAT(engine->run({&r, 1}).status().message(), HasSubstr("at most 8 are accepted"));
  }
  EXPECT_TRUE(engine->idle());
  const std::vector<Request> one_is_bad = {r, request(0, 1)};
  EXPECT_THAT(engine->run(one_is_bad).status().message(), HasSubstr("request 1: the prompt is empty"));
  EXPECT_TRUE(engine->idle()) << "the good one was taken back";
  EXPECT_TRUE(engine->run({&r, 1}).ok());
}

TEST_P(EngineRuns, ChunksBelowTheNumberOfRunningRequestsChangeNothing) {
  EngineOptions options = small_options();
  options.chunked_prefill_size = 2;
  options.graphs.piecewise_tokens = {1, 2};
  const std::unique_ptr<Engine> engine = make(options);
  const std::vector<Request> requests = {request(5, 8), request(4, 8, 2), request(3, 8, 3), request(6, 8, 4)};
  const Result<std::vector<Completion>> together = engine->run(requests);
  ASSERT_TRUE(together.ok()) << together.status().to_string();
  for (std::size_t i = 0; i < requests.size(); ++i)
    EXPECT_EQ((*together)[i].output_ids, run_one(*engine, requests[i]).output_ids) << i;
}

TEST_P(EngineRuns, ExtremeSamplingParametersStillGiveTokens) {
  const std::unique_ptr<Engine> engine = make();
  for (const SamplingParams& params :
       {SamplingParams{.temperature = 1e300, .seed = 1}, SamplingParams{.temperature = 1e-300, .seed = 1},
        SamplingParams{.temperature = 1, .top_p = 1e-300, .seed = 1},
        SamplingParams{.temperature = 1, .top_k = std::int64_t{1} << 40, .seed = 1}}) {
    Request r = request(5, 6);
    r.sampling = params;
    for (const TokenId id : run_one(*engine, r).output_ids) {
      EXPECT_GE(id.value(), 0) << params.temperature;
      EXPECT_LT(id.value(), 512) << params.temperature;
    }
  }
  Request narrow = request(5, 6);
  narrow.sampling = {.temperature = 1, .top_p = 1e-300, .seed = 1};
  EXPECT_EQ(run_one(*engine, narrow).output_ids, run_one(*engine, request(5, 6)).output_ids) << "the first token alone";
}

TEST(EngineCreate, RefusesAMissingModel) {
  const auto error = [](auto change) {
    EngineOptions options = small_options();
    change(options);
    return Engine::create(options).status().message();
  };
  EXPECT_THAT(error([](EngineOptions& o) { o.device = "npu"; }), HasSubstr("\"npu\""));
  EXPECT_THAT(error([](EngineOptions& o) { o.model_path = "/nowhere"; }), HasSubstr("/nowhere"));
  EXPECT_THAT(error([](EngineOptions& o) { o.tokenizer_path = "/nowhere"; }), HasSubstr("/nowhere"));
}

TEST(EngineCreate, DummyWeightsNeedNoCheckpoint) {
  EngineOptions options = small_options();
  options.model_path = testing::data_path("goldens/qwen3/config.json");
  options.load_format = LoadFormat::kDummy;
  const std::unique_ptr<Engine> engine = make_engine(options);
  EXPECT_EQ(engine->tokenizer(), nullptr);
  EXPECT_EQ(run_one(*engine, request(5, 6)).output_ids, run_one(*make_engine(options), request(5, 6)).output_ids);
}

}  // namespace
}  // namespace tessera
