// Catches: a requested feature (log-probabilities, penalties, limits, stop strings, hidden states, priorities,
// time-outs) that is missing from the result, comes from another row, or works only if the request runs alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "tessera/engine/engine_test_util.h"

namespace tessera {
namespace {

using test::demo_options;
using test::make_engine;
using test::request;
using test::run_one;
using test::sampled;
using test::small_options;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::int64_t kVocab = 512;

class EngineFeatures : public test::EngineRuns {};
INSTANTIATE_TEST_SUITE_P(, EngineFeatures, ::testing::Bool(), test::overlap_name);

// Returns the log-probabilities of all tokens of the vocabulary for the place after `position`.
std::vector<double> log_softmax(const std::vector<float>& logits, std::size_t position) {
  const auto row = logits.begin() + static_cast<std::ptrdiff_t>(position * kVocab);
  const double greatest = *std::max_element(row, row + kVocab);
  double sum = 0;
  for (auto x = row; x != row + kVocab; ++x) sum += std::exp(*x - greatest);
  std::vector<double> made;
  for (auto x = row; x != row + kVocab; ++x) made.push_back(*x - greatest - std::log(sum));
  return made;
}

std::span<const RequestEvent> step(Engine& engine) {
  const Result<std::span<RequestEvent>> events = engine.step();
  EXPECT_TRUE(events.ok()) << events.status().to_string();
  return events.ok() ? *events : std::span<RequestEvent>();
}

void expect_logprobs(const TokenLogprobs& got, const std::vector<double>& want, TokenId token, std::size_t top) {
  EXPECT_EQ(got.token.id, token);
  EXPECT_NEAR(got.token.logprob, want[token.index()], 1e-4);
  ASSERT_THAT(got.top, SizeIs(top));
  std::vector<double> sorted = want;
  std::sort(sorted.rbegin(), sorted.rend());
  for (std::size_t i = 0; i < top; ++i) {
    EXPECT_NEAR(got.top[i].logprob, sorted[i], 1e-4);
    EXPECT_NEAR(got.top[i].logprob, want[got.top[i].id.index()], 1e-4);
  }
}

TEST_P(EngineFeatures, LogprobsFollowFromTheLogits) {
  const std::unique_ptr<Engine> engine = make();
  Request asked = request(40, 4);
  asked.sampling = {.temperature = 1.2, .repetition_penalty = 1.3, .seed = 5};
  asked.logprobs = {.output = 3, .prompt = 2};
  Request from_ten = asked;
  from_ten.logprobs.prompt_start = 10;
  const std::vector<Request> requests = {asked, request(12, 6), from_ten};
  const Result<std::vector<Completion>> done = engine->run(requests);
  ASSERT_TRUE(done.ok()) << done.status().to_string();

  Request score = request(40, 0);
  score.prompt.insert(score.prompt.end(), (*done)[0].output_ids.begin(), (*done)[0].output_ids.end());
  score.score = true;
  const std::vector<float> logits = run_one(*engine, score).logits;
  ASSERT_THAT((*done)[0].output_logprobs, SizeIs(4));
  for (std::size_t i = 0; i < 4; ++i)
    expect_logprobs((*done)[0].output_logprobs[i], log_softmax(logits, 39 + i), (*done)[0].output_ids[i], 3);
  ASSERT_THAT((*done)[0].prompt_logprobs, SizeIs(40));
  EXPECT_TRUE(std::isnan((*done)[0].prompt_logprobs[0].token.logprob)) << "nothing comes before the first";
  for (std::size_t i = 1; i < 40; ++i)
    expect_logprobs((*done)[0].prompt_logprobs[i], log_softmax(logits, i - 1), asked.prompt[i], 2);
  ASSERT_THAT((*done)[2].prompt_logprobs, SizeIs(30));
  expect_logprobs((*done)[2].prompt_logprobs[0], log_softmax(logits, 9), asked.prompt[10], 2);
  EXPECT_THAT((*done)[1].prompt_logprobs, IsEmpty());
}

TEST_P(EngineFeatures, LogprobsAndEditsRunOnGraphs) {
  const std::unique_ptr<Engine> engine = make();
  Request asked = request(16, 5);
  asked.sampling = {.temperature = 1, .min_p = 0.01, .presence_penalty = 1, .seed = 5};
  asked.logprobs = {.output = 1, .prompt = 1};
  run_one(*engine, asked);
  for (const auto& [key, count] : engine->stats().forwards.by_key)
    EXPECT_NE(key.runner, RunnerKind::kEager) << count.forwards << " forwards went eager";
}

TEST_P(EngineFeatures, ABiasAndPenaltiesDecideGreedyTexts) {
  const std::unique_ptr<Engine> engine = make();
  const std::vector<TokenId> plain = run_one(*engine, request(6, 12)).output_ids;
  Request without = request(6, 12);
  for (const TokenId token : plain) without.sampling.logit_bias.emplace_back(token, -100.0F);
  std::sort(without.sampling.logit_bias.begin(), without.sampling.logit_bias.end());
  for (const TokenId token : run_one(*engine, without).output_ids)
    EXPECT_THAT(plain, ::testing::Not(::testing::Contains(token)));
  Request only = request(6, 5);
  only.sampling.logit_bias = {{TokenId(77), 100.0F}};
  EXPECT_THAT(run_one(*engine, only).output_ids, ::testing::Each(TokenId(77)));
  // This checkpoint's logits are close together, so a frequency penalty of two excludes a token that has occurred.
  only.sampling.frequency_penalty = 2;
  only.sampling.logit_bias = {{TokenId(77), 3.0F}, {TokenId(78), 2.5F}};
  Request free = only;
  free.sampling.frequency_penalty = 0;
  EXPECT_NE(run_one(*engine, only).output_ids, run_one(*engine, free).output_ids);
}

TEST_P(EngineFeatures, TextsDoNotEndBeforeTheirLeastLength) {
  const std::unique_ptr<Engine> engine = make();
  Request short_one = request(6, 30);
  const std::vector<TokenId> plain = run_one(*engine, short_one).output_ids;
  short_one.stop.ids = {plain[3]};
  const Completion stopped = run_one(*engine, short_one);
  const auto end = std::find(plain.begin(), plain.end(), plain[3]);
  EXPECT_EQ(stopped.output_ids, std::vector<TokenId>(plain.begin(), end));
  EXPECT_EQ(stopped.finish, FinishReason::kStop);
  EXPECT_EQ(stopped.matched.id, plain[3]);
  short_one.stop.keep_matched = true;
  EXPECT_EQ(run_one(*engine, short_one).output_ids, std::vector<TokenId>(plain.begin(), end + 1));
  short_one.stop.keep_matched = false;
  short_one.stop.min_new_tokens = 12;
  const Completion later = run_one(*engine, short_one);
  EXPECT_GE(later.output_ids.size(), 12u);
  EXPECT_THAT(later.output_ids, ::testing::Not(::testing::Contains(plain[3])));
}

TEST(EngineText, StopStringsEndTheTextWhereverTokensAreCut) {
  const std::unique_ptr<Engine> engine = make_engine(demo_options());
  Request story{.prompt = *engine->tokenizer()->encode("Once upon a time"), .stop = {.max_new_tokens = 60}};
  const std::string whole = run_one(*engine, story).text;
  ASSERT_GT(whole.size(), 40u);
  for (const std::size_t at : {5u, 17u, 30u}) {
    Request stopped = story;
    stopped.stop.texts = {"not in the text", whole.substr(at, 4)};
    std::string streamed;
    const Result<std::vector<Completion>> done =
        engine->run({&stopped, 1}, [&](std::size_t, const RequestEvent& event) { streamed += event.text; });
    ASSERT_TRUE(done.ok());
    EXPECT_EQ((*done)[0].text, whole.substr(0, whole.find(whole.substr(at, 4))));
    EXPECT_EQ(streamed, (*done)[0].text);
    EXPECT_EQ((*done)[0].finish, FinishReason::kStop);
    EXPECT_EQ((*done)[0].matched.text, whole.substr(at, 4));
  }
  EXPECT_EQ(engine->tokenizer()->decode(run_one(*engine, story).output_ids), whole);
}

TEST_P(EngineFeatures, ChoicesOfOneSeedDiffer) {
  const std::unique_ptr<Engine> engine = make();
  std::vector<Request> choices(3, sampled(20, 12, 5));
  for (std::int32_t i = 0; i < 3; ++i) choices[static_cast<std::size_t>(i)].sampling.choice = i;
  const Result<std::vector<Completion>> done = engine->run(choices);
  ASSERT_TRUE(done.ok());
  EXPECT_NE((*done)[0].output_ids, (*done)[1].output_ids);
  EXPECT_NE((*done)[1].output_ids, (*done)[2].output_ids);
  EXPECT_EQ((*done)[1].cached_tokens, 16) << "the prompt is computed once";
  EXPECT_EQ(run_one(*engine, choices[1]).output_ids, (*done)[1].output_ids);
}

TEST_P(EngineFeatures, APrefixFromTheCacheChangesNothing) {
  const std::unique_ptr<Engine> engine = make();
  const Completion first = run_one(*engine, request(40, 10));
  const Completion second = run_one(*engine, request(40, 10));
  EXPECT_EQ(first.cached_tokens, 0);
  EXPECT_EQ(second.cached_tokens, 32);
  EXPECT_EQ(second.output_ids, first.output_ids);
  engine->flush_prefix_cache();
  EXPECT_EQ(run_one(*engine, request(40, 10)).cached_tokens, 0);
  EngineOptions without = small_options();
  without.disable_radix_cache = true;
  const std::unique_ptr<Engine> other = make(without);
  run_one(*other, request(40, 10));
  const Completion again = run_one(*other, request(40, 10));
  EXPECT_EQ(again.cached_tokens, 0);
  EXPECT_EQ(again.output_ids, first.output_ids);
}

TEST_P(EngineFeatures, PreemptedRequestsGiveTheSameTextsAsAlone) {
  EngineOptions tight = small_options();
  tight.max_total_tokens = 96;
  const std::unique_ptr<Engine> engine = make(tight);
  std::vector<Request> requests;
  for (std::int32_t i = 0; i < 12; ++i) {
    requests.push_back(i % 3 == 0 ? sampled(5 + i, 30, i) : request(7 + 2 * i, 30, i));
    requests.back().priority = i % 2;
    if (i % 4 == 1) requests.back().logprobs = {.output = 0, .prompt = 0};
  }
  const Result<std::vector<Completion>> together = engine->run(requests);
  ASSERT_TRUE(together.ok()) << together.status().to_string();
  EXPECT_GT(engine->stats().preemptions, 3);
  const std::unique_ptr<Engine> roomy = make();
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const Completion alone = run_one(*roomy, requests[i]);
    EXPECT_EQ((*together)[i].output_ids, alone.output_ids) << i;
    EXPECT_EQ((*together)[i].prompt_logprobs.size(), alone.prompt_logprobs.size()) << i;
    EXPECT_EQ((*together)[i].output_logprobs.size(), alone.output_logprobs.size()) << i;
  }
  EXPECT_EQ(engine->stats().fullest_group().used_pages, 0);
}

TEST_P(EngineFeatures, EveryTokenHasOneHiddenState) {
  const std::unique_ptr<Engine> engine = make();
  const auto hidden = static_cast<std::size_t>(engine->config().hidden_size);
  Request asked = request(40, 4);
  asked.return_hidden_states = true;
  const Completion done = run_one(*engine, asked);
  ASSERT_EQ(done.hidden_states.size(), (40 + 3) * hidden) << "the last token is fed to no forward";
  // A prompt of the same tokens returns the hidden states that the decode steps returned.
  Request longer = request(40, 1);
  longer.prompt.insert(longer.prompt.end(), done.output_ids.begin(), done.output_ids.end() - 1);
  longer.return_hidden_states = true;
  const Completion whole = run_one(*engine, longer);
  ASSERT_EQ(whole.hidden_states.size(), done.hidden_states.size());
  for (std::size_t i = 0; i < whole.hidden_states.size(); ++i)
    ASSERT_NEAR(whole.hidden_states[i], done.hidden_states[i], 1e-4) << i / hidden;
  for (const auto& [key, count] : engine->stats().forwards.by_key)
    EXPECT_NE(key.runner, RunnerKind::kEager) << count.forwards << " forwards went eager";
}

TEST_P(EngineFeatures, RefusesPromptsThatExceedTheCache) {
  EngineOptions options = small_options();
  options.max_total_tokens = 32;
  const std::unique_ptr<Engine> engine = make(options);
  for (const std::int64_t new_tokens : {0, 1}) {
    const Result<RequestId> refused = engine->submit(request(33, new_tokens));
    EXPECT_EQ(refused.status().message(), "the prompt has 33 tokens, which is too long for a context of 32");
  }
  EXPECT_THAT(run_one(*engine, request(32, 1)).output_ids, SizeIs(1)) << "the last token needs no place";
}

TEST_P(EngineFeatures, RequestsThatFitTheNextStepAreNotQueued) {
  EngineOptions options = small_options();
  options.max_queued_requests = 1;
  const std::unique_ptr<Engine> engine = make(options);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(engine->submit(request(5, 4, i)).ok()) << i;
  EXPECT_EQ(engine->submit(request(5, 4)).status().code(), StatusCode::kResourceExhausted) << "four run, one waits";
}

TEST_P(EngineFeatures, AFullQueueRefusesRequests) {
  EngineOptions options = small_options();
  options.max_queued_requests = 2;
  options.max_running_requests = 1;
  const std::unique_ptr<Engine> engine = make(options);
  ASSERT_TRUE(engine->submit(request(5, 4)).ok());
  ASSERT_TRUE(engine->step().ok());
  ASSERT_TRUE(engine->submit(request(5, 4)).ok());
  ASSERT_TRUE(engine->submit(request(5, 4)).ok());
  const Result<RequestId> refused = engine->submit(request(5, 4));
  EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.status().message(), HasSubstr("2 requests wait already"));
  int ends = 0;
  while (!engine->idle()) {
    for (const RequestEvent& event : step(*engine)) ends += event.finish == FinishReason::kLength ? 1 : 0;
  }
  EXPECT_EQ(ends, 3);
}

TEST_P(EngineFeatures, AProbeIsAdmittedBeforeAFullQueue) {
  EngineOptions options = small_options();
  options.max_queued_requests = 1;
  options.max_running_requests = 1;
  const std::unique_ptr<Engine> engine = make(options);
  ASSERT_TRUE(engine->submit(request(5, 20)).ok());
  ASSERT_TRUE(engine->step().ok());
  Request urgent = request(5, 2);
  urgent.priority = kProbePriority - 1;
  const RequestId waiting = *engine->submit(urgent);
  EXPECT_EQ(engine->submit(urgent).status().code(), StatusCode::kResourceExhausted);
  Request probe = request(1, 1);
  probe.priority = kProbePriority;
  const Result<RequestId> admitted = engine->submit(probe);
  ASSERT_TRUE(admitted.ok()) << admitted.status().to_string();
  std::vector<RequestId> ended;
  while (!engine->idle()) {
    for (const RequestEvent& event : step(*engine))
      if (event.finish == FinishReason::kLength) ended.push_back(event.request);
  }
  ASSERT_THAT(ended, SizeIs(3));
  EXPECT_EQ(ended[0], *admitted) << "it preempts what runs";
  EXPECT_EQ(ended[1], waiting);
}

TEST_P(EngineFeatures, ATimeoutEndsItsRequestAndNoOther) {
  const std::unique_ptr<Engine> engine = make();
  Request hurried = request(5, 50);
  hurried.timeout_s = 1e-3;
  const RequestId late = *engine->submit(hurried);
  const RequestId other = *engine->submit(request(5, 6));
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  bool timed_out = false;
  while (!engine->idle()) {
    for (const RequestEvent& event : step(*engine)) timed_out |= event.finish == FinishReason::kTimeout;
  }
  EXPECT_TRUE(timed_out);
  EXPECT_EQ(engine->take(late)->finish, FinishReason::kTimeout);
  EXPECT_THAT(engine->take(other)->output_ids, SizeIs(6));
}

TEST_P(EngineFeatures, APromptMayBeComputedWithoutGeneration) {
  const std::unique_ptr<Engine> engine = make();
  Request one = request(1, 2);
  one.logprobs.prompt = 0;
  EXPECT_THAT(run_one(*engine, one).prompt_logprobs, SizeIs(1)) << "though nothing comes before it";
  Request prompt = request(40, 0);
  prompt.logprobs.prompt = 0;
  const Completion done = run_one(*engine, prompt);
  EXPECT_EQ(done.finish, FinishReason::kLength);
  EXPECT_THAT(done.output_ids, IsEmpty());
  EXPECT_THAT(done.prompt_logprobs, SizeIs(40));
}

TEST_P(EngineFeatures, PromptsUseTheFormMeasuredToBeFaster) {
  const std::unique_ptr<Engine> pieces = make();
  EngineOptions options = small_options();
  options.known_costs.emplace().add_full(16, {.ratio = 0.5, .equal = true});
  const std::unique_ptr<Engine> chosen = make(options);
  EXPECT_THAT(chosen->stats().graphs->prefill.full, ElementsAre(16));
  EXPECT_THAT(pieces->stats().graphs->prefill.full, IsEmpty());
  const Request r = request(14, 3);
  EXPECT_EQ(run_one(*chosen, r).output_ids, run_one(*pieces, r).output_ids);
  EXPECT_EQ(chosen->stats().forwards.forwards(Reason::kFullCostsLess), 1);
  EXPECT_EQ(pieces->stats().forwards.forwards(Reason::kFullCostsLess), 0);
}

TEST(EngineSubmit, RefusesRequestsThatCannotBeServed) {
  const std::unique_ptr<Engine> engine = make_engine();
  const auto error = [&](auto change) {
    Request r = request(5, 4);
    change(r);
    const Result<RequestId> id = engine->submit(r);
    EXPECT_EQ(id.status().code(), StatusCode::kInvalidArgument);
    return id.status().message();
  };
  EXPECT_EQ(error([](Request& r) { r.stop.texts = {"end"}; }), "stop strings need a tokenizer, and the model has none");
  EXPECT_EQ(error([](Request& r) { r.stop.ids = {TokenId(512)}; }), "a stop token has id 512; accepted are 0 to 511");
  EXPECT_EQ(error([](Request& r) {
              r.sampling.logit_bias = {{TokenId(-1), 1.0F}};
            }),
            "a token of logit_bias has id -1; accepted are 0 to 511");
  EXPECT_EQ(error([](Request& r) { r.stop.min_new_tokens = 5; }),
            "min_new_tokens is 5; accepted is 0 to max_new_tokens, 4");
  EXPECT_EQ(error([](Request& r) { r.logprobs.output = 21; }), "logprobs of output tokens is 21; accepted is 0 to 20");
  EXPECT_EQ(error([](Request& r) { r.timeout_s = -1; }), "timeout_s is -1; accepted is 0 to 1000000000");
  EXPECT_EQ(error([](Request& r) { r.sampling.min_p = 1.5; }), "min_p is 1.5; accepted is 0 to 1");
  EXPECT_EQ(error([](Request& r) { r.sampling.repetition_penalty = 0; }),
            "repetition_penalty is 0; accepted is more than 0 and at most 10");
  EXPECT_EQ(error([](Request& r) { r.sampling.frequency_penalty = 3; }), "frequency_penalty is 3; accepted is -2 to 2");
}

}  // namespace
}  // namespace tessera
