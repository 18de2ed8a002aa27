// Catches: drafts that change a request's output, with any options, stop conditions or neighbours; forwards that read
// what refused drafts left in the cache; drafts that are never kept; and models and options that are accepted although
// drafts give wrong results with them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tessera/engine/engine_test_util.h"
#include "tessera/ops/testing/ranks.h"

namespace tessera {
namespace {

using test::demo_options;
using test::make_engine;
using test::request;
using test::sampled;
using test::small_options;
using ::testing::HasSubstr;

// Makes the results of a row have the same bits for any number of rows in a forward, so that drafts cannot change the
// sampled tokens by rounding.
EngineOptions exact(EngineOptions options) {
  options.deterministic = true;
  return options;
}

EngineOptions with_drafts(EngineOptions options) {
  options.drafts.source = DraftSource::kText;
  return options;
}

// Runs the requests with drafts and without, expects equal outputs, and returns the statistics of the drafts.
DraftStats expect_same(const EngineOptions& options, const std::vector<Request>& requests) {
  const std::unique_ptr<Engine> plain = make_engine(exact(options));
  const std::unique_ptr<Engine> drafting = make_engine(exact(with_drafts(options)));
  DraftTotals of_requests;
  for (const bool cached : {false, true}) {
    const Result<std::vector<Completion>> expected = plain->run(requests);
    const Result<std::vector<Completion>> actual = drafting->run(requests);
    EXPECT_TRUE(expected.ok()) << expected.status().to_string();
    EXPECT_TRUE(actual.ok()) << actual.status().to_string();
    for (std::size_t i = 0; i < requests.size() && actual.ok(); ++i) {
      EXPECT_EQ((*actual)[i].output_ids, (*expected)[i].output_ids) << "request " << i << (cached ? " cached" : "");
      EXPECT_EQ((*actual)[i].text, (*expected)[i].text);
      EXPECT_EQ((*actual)[i].finish, (*expected)[i].finish);
      EXPECT_EQ((*actual)[i].matched.text, (*expected)[i].matched.text);
      EXPECT_EQ((*expected)[i].drafts.steps, 0);
      EXPECT_LE((*actual)[i].drafts.kept, std::ssize((*actual)[i].output_ids));
      of_requests.add((*actual)[i].drafts);
      EXPECT_EQ((*actual)[i].output_logprobs.size(), (*expected)[i].output_logprobs.size());
      for (std::size_t t = 0; t < (*expected)[i].output_logprobs.size(); ++t)
        EXPECT_EQ((*actual)[i].output_logprobs[t].token.logprob, (*expected)[i].output_logprobs[t].token.logprob)
            << "token " << t;
    }
  }
  EXPECT_EQ(plain->stats().drafts.steps, 0);
  EXPECT_EQ(of_requests.steps, drafting->stats().drafts.steps);
  EXPECT_EQ(of_requests.drafted, drafting->stats().drafts.drafted);
  EXPECT_EQ(of_requests.kept, drafting->stats().drafts.kept);
  EXPECT_EQ(drafting->stats().output_tokens, plain->stats().output_tokens);
  EXPECT_LE(drafting->stats().steps, plain->stats().steps);
  return drafting->stats().drafts;
}

// Returns a request whose prompt repeats its first `period` tokens again and again.
Request repeating(std::int64_t prompt, std::int64_t period, std::int64_t new_tokens, std::int32_t salt = 1) {
  Request made = request(prompt, new_tokens, salt);
  for (std::int64_t i = period; i < prompt; ++i)
    made.prompt[static_cast<std::size_t>(i)] = made.prompt[static_cast<std::size_t>(i - period)];
  return made;
}

TEST(Speculation, GreedyTokensAreThoseOfPlainDecodes) {
  const DraftStats stats =
      expect_same(small_options(), {repeating(12, 4, 40), repeating(16, 5, 30, 2), request(9, 40, 3), request(20, 1)});
  EXPECT_GT(stats.kept, 20);
  EXPECT_GE(stats.drafted, stats.kept);
}

TEST(Speculation, DraftsAreCountedForTheirOwnRequest) {
  const std::unique_ptr<Engine> engine = make_engine(exact(with_drafts(small_options())));
  const Result<std::vector<Completion>> done = engine->run(std::vector<Request>{repeating(24, 3, 40), request(9, 1)});
  ASSERT_TRUE(done.ok()) << done.status().to_string();
  EXPECT_GT((*done)[0].drafts.steps, 0);
  EXPECT_EQ((*done)[1].drafts.steps, 0) << "a request of one token has no room for drafts";
}

TEST(Speculation, ReasoningEndsAtItsLimitWithDraftsToo) {
  std::vector<Request> requests{repeating(12, 4, 40), repeating(16, 5, 30, 2), repeating(16, 3, 40)};
  for (std::size_t i = 0; i < requests.size(); ++i)
    requests[i].reasoning_limit = {
        .tokens = 10 + static_cast<std::int64_t>(i), .opened = true, .closing_ids = {TokenId(5), TokenId(6)}};
  EXPECT_GT(expect_same(small_options(), requests).kept, 10);
}

TEST(Speculation, SampledTokensAreThoseOfPlainDecodes) {
  std::vector<Request> requests{sampled(12, 40, 1), sampled(14, 40, 2), repeating(16, 3, 40)};
  requests[2].sampling = {.temperature = 0.1, .seed = 3};
  EXPECT_GT(expect_same(small_options(), requests).drafted, 0);
}

TEST(Speculation, WindowsSeeTheSameTokens) {
  for (const char* name : {"gemma3", "mistral-swa"}) {
    EngineOptions options = small_options();
    options.model_path = testing::data_path(std::string("goldens/") + name);
    EXPECT_GT(expect_same(options, {repeating(20, 4, 40), repeating(12, 5, 44, 2)}).kept, 0) << name;
  }
}

// After a forward, the recurrent state does not include the forward's drafts. The next forward first advances the state
// over the drafts that were kept.
TEST(Speculation, RecurrentStatesGoBackOverRefusedDrafts) {
  for (const char* name : {"qwen3.5-text", "qwen3-next"}) {
    EngineOptions options = small_options();
    options.model_path = testing::data_path(std::string("goldens/") + name);
    // Uses texts of a few different tokens, which repeat themselves.
    std::vector<Request> requests{repeating(20, 4, 40), request(9, 40, 3), sampled(14, 40, 1), sampled(12, 44, 2)};
    for (Request& made : requests) made.sampling.allowed_tokens = {TokenId(5), TokenId(6), TokenId(7)};
    const DraftStats stats = expect_same(options, requests);
    EXPECT_GT(stats.kept, 10) << name;
    EXPECT_GT(stats.drafted, stats.kept) << name;
  }
}

TEST(Speculation, ASecondTurnContinuesOnStatesOfDrafts) {
  EngineOptions options = small_options();
  options.model_path = testing::data_path("goldens/qwen3.5-text");
  const std::unique_ptr<Engine> plain = make_engine(exact(options));
  const std::unique_ptr<Engine> drafting = make_engine(exact(with_drafts(options)));
  // Prompts of 9 to 17 tokens make the turns end at every place within a page. At the end of some turns, the state does
  // not include the drafts that were kept last.
  for (const std::int64_t length : {9, 10, 11, 12, 13, 14, 15, 16, 17}) {
    Request turn = repeating(length, 4, 12, static_cast<std::int32_t>(length));
    turn.sampling.allowed_tokens = {TokenId(5), TokenId(6)};
    for (int number = 0; number < 4; ++number) {
      const Completion expected = test::run_one(*plain, turn);
      EXPECT_EQ(test::run_one(*drafting, turn).output_ids, expected.output_ids) << length << ", turn " << number;
      turn.prompt.insert(turn.prompt.end(), expected.output_ids.begin(), expected.output_ids.end());
      turn.prompt.emplace_back(7);
    }
  }
  EXPECT_GT(drafting->stats().drafts.kept, 5);
}

TEST(Speculation, EndsWherePlainDecodesEnd) {
  EngineOptions options = demo_options();
  const std::unique_ptr<Engine> engine = make_engine(options);
  std::vector<Request> requests;
  for (const char* stop : {"is 10.", "user", "nt\n1"}) {
    Request made{.prompt = *engine->tokenizer()->encode(
                     "What is 10 * 1?\nassistant\n10 times 1 is 10.\nuser\nWhat is 10 * 1?\nassistant\n10 times"),
                 .stop = {.max_new_tokens = 60}};
    made.stop.texts = {stop};
    made.stop.min_new_tokens = 0;
    made.wants_text = true;
    requests.push_back(made);
  }
  requests.push_back(requests[0]);
  requests[3].stop.texts.clear();
  EXPECT_GT(expect_same(options, requests).kept, 0);
}

// The second prompt continues the first prompt and its output, whose pages are in the prefix cache. Kept drafts wrote
// some of these pages.
TEST(Speculation, ASecondTurnContinuesOnPagesOfDrafts) {
  EngineOptions options = exact(small_options());
  const std::unique_ptr<Engine> plain = make_engine(options);
  const std::unique_ptr<Engine> drafting = make_engine(exact(with_drafts(small_options())));
  Request turn = repeating(12, 4, 20);
  const Completion first = test::run_one(*plain, turn);
  EXPECT_EQ(test::run_one(*drafting, turn).output_ids, first.output_ids);
  EXPECT_GT(drafting->stats().drafts.kept, 8);
  turn.prompt.insert(turn.prompt.end(), first.output_ids.begin(), first.output_ids.end());
  turn.prompt.emplace_back(7);
  const Completion second = test::run_one(*drafting, turn);
  EXPECT_GT(second.cached_tokens, 16);
  EXPECT_EQ(second.output_ids, test::run_one(*plain, turn).output_ids);
}

TEST(Speculation, StopsAmongKeptDrafts) {
  const Request request = repeating(12, 4, 30);
  const std::unique_ptr<Engine> plain = make_engine(exact(small_options()));
  const std::vector<TokenId> output = test::run_one(*plain, request).output_ids;
  for (const std::size_t at : {std::size_t{8}, std::size_t{15}, std::size_t{22}})
    for (const bool keep : {false, true}) {
      Request stopped = request;
      stopped.stop.ids = {output[at]};
      stopped.stop.min_new_tokens = 0;
      stopped.stop.keep_matched = keep;
      expect_same(small_options(), {stopped});
    }
}

TEST(Speculation, RanksDraftTogether) {
  EngineOptions options = small_options();
  options.tp_size = 2;
  if (!testing::has_devices_for(2)) GTEST_SKIP() << "needs 2 GPUs";
  EXPECT_GT(expect_same(options, {repeating(12, 4, 40), repeating(16, 5, 30, 2)}).kept, 0);
}

// While one request decodes, a new prompt arrives in each step. Prompts are computed in parts and whole.
TEST(Speculation, DraftsAreCheckedBesidePrompts) {
  constexpr int kPrompts = 8;
  for (const char* name : {"llama", "gemma3", "qwen3.5-text"}) {
    EngineOptions options = small_options();
    options.model_path = testing::data_path(std::string("goldens/") + name);
    std::map<RequestId, std::vector<TokenId>> texts[2];
    for (const bool drafts : {false, true}) {
      const std::unique_ptr<Engine> engine = make_engine(exact(drafts ? with_drafts(options) : options));
      const auto step = [&] {
        const Result<std::span<RequestEvent>> events = engine->step();
        ASSERT_TRUE(events.ok()) << events.status().to_string();
        for (const RequestEvent& event : *events)
          if (event.token) texts[drafts ? 1 : 0][event.request].push_back(*event.token);
      };
      Request first = repeating(20, 4, 40);
      first.sampling.allowed_tokens = {TokenId(5), TokenId(6), TokenId(7)};
      ASSERT_TRUE(engine->submit(first).ok());
      for (int i = 0; i < 30 && engine->stats().drafts.steps == 0; ++i) step();
      const std::int64_t before = engine->stats().drafts.steps;
      for (int prompt = 0; prompt < kPrompts; ++prompt) {
        ASSERT_TRUE(engine->submit(request(prompt % 2 == 0 ? 40 : 9, 1, 10 + prompt)).ok());
        step();
      }
      EXPECT_EQ(engine->stats().drafts.steps > before, drafts) << name;
      while (!engine->idle()) step();
    }
    EXPECT_EQ(texts[0].size(), kPrompts + 1) << name;
    EXPECT_EQ(texts[1], texts[0]) << name;
  }
}

TEST(Speculation, LogprobsAreThoseOfPlainDecodes) {
  std::vector<Request> requests{repeating(12, 4, 40), request(9, 20, 3)};
  for (Request& each : requests) each.logprobs.output = 3;
  EXPECT_GT(expect_same(small_options(), requests).kept, 0);
}

TEST(Speculation, RequestsWithEditsRunBesideIt) {
  std::vector<Request> requests{repeating(12, 4, 40), repeating(12, 4, 40)};
  requests[1].sampling.presence_penalty = 0.5;
  EXPECT_GT(expect_same(small_options(), requests).kept, 0);
}

// Requests with these edits may draft, because a bias and a minimum length depend on no earlier token.
TEST(Speculation, BiasedTokensAreThoseOfPlainDecodes) {
  std::vector<Request> requests{repeating(12, 4, 40), repeating(16, 5, 30, 2), sampled(12, 40, 3)};
  for (Request& made : requests) {
    made.sampling.logit_bias = {{TokenId(5), 4.0F}, {TokenId(9), 3.5F}};
    made.stop.min_new_tokens = 20;
  }
  EXPECT_GT(expect_same(small_options(), requests).kept, 10);
}

TEST(Speculation, TextsOfAGrammarAreThoseOfPlainDecodes) {
  if (!GrammarCompiler::available()) GTEST_SKIP() << "built without xgrammar";
  const EngineOptions options = demo_options();
  const std::unique_ptr<Engine> engine = make_engine(options);
  const auto compiler = GrammarCompiler::create(*engine->tokenizer(), engine->config().vocab_size, engine->end_ids());
  ASSERT_TRUE(compiler.ok());
  using Kind = GrammarSpec::Kind;
  const std::vector<GrammarSpec> specs{
      {.kind = Kind::kRegex, .text = "(ab|ba){4,12}"},
      {.kind = Kind::kJsonSchema,
       .text = R"({"type": "array", "minItems": 3, "maxItems": 5, "items": {"type": "object", "properties":
               {"name": {"enum": ["cat", "dog"]}, "legs": {"enum": [2, 4]}}, "required": ["name", "legs"],
               "additionalProperties": false}})"},
      {.kind = Kind::kJsonObject, .text = ""}};
  std::vector<Request> requests;
  for (std::size_t i = 0; i < 12; ++i) {
    Request made{.prompt = *engine->tokenizer()->encode("Tell me about cats and dogs."),
                 .sampling = {.temperature = i < 3 ? 0.0 : 1.0, .seed = static_cast<std::int64_t>(i)},
                 .stop = {.max_new_tokens = 80}};
    made.stop.min_new_tokens = 0;
    made.grammar = (*compiler)->compile(specs[i % specs.size()]).value();
    made.wants_text = true;
    requests.push_back(std::move(made));
  }
  const DraftStats stats = expect_same(options, requests);
  EXPECT_GT(stats.kept, 30);
  EXPECT_GT(stats.drafted, stats.kept);
}

TEST(Speculation, FewPagesAndPreemptionsChangeNothing) {
  EngineOptions options = small_options();
  options.max_total_tokens = 96;
  const std::vector<Request> requests{repeating(12, 4, 40), repeating(16, 5, 40, 2), repeating(14, 3, 40, 4)};
  EXPECT_GT(expect_same(options, requests).kept, 0);
  const std::unique_ptr<Engine> plain = make_engine(exact(options));
  const std::unique_ptr<Engine> drafting = make_engine(exact(with_drafts(options)));
  ASSERT_TRUE(plain->run(requests).ok());
  ASSERT_TRUE(drafting->run(requests).ok());
  EXPECT_GT(plain->stats().preemptions, 0);
  EXPECT_LE(drafting->stats().preemptions, plain->stats().preemptions);
}

TEST(Speculation, CancelledRequestsLeaveOthersAlone) {
  const std::unique_ptr<Engine> engine = make_engine(exact(with_drafts(small_options())));
  const Request other = repeating(12, 4, 40);
  const std::vector<TokenId> expected = test::run_one(*engine, other).output_ids;
  const RequestId first = *engine->submit(repeating(16, 5, 40, 2));
  const RequestId second = *engine->submit(other);
  for (int step = 0; step < 3; ++step) ASSERT_TRUE(engine->step().ok());
  engine->cancel(first);
  while (!engine->idle()) ASSERT_TRUE(engine->step().ok());
  EXPECT_EQ(engine->take(second)->output_ids, expected);
}

TEST(Speculation, WhatItDoesNotSupportIsRefusedByName) {
  const auto refusal = [](auto change) {
    EngineOptions options = with_drafts(small_options());
    change(options);
    return Engine::create(options).status().message();
  };
  EXPECT_THAT(refusal([](EngineOptions& o) {
                o.pp_size = 2;
                o.drafts.source = DraftSource::kEagle;
                o.drafts.model_path = "somewhere";
              }),
              HasSubstr("speculative_algorithm: EAGLE3 is not supported with a pipeline"));
  EXPECT_THAT(refusal([](EngineOptions& o) {
                o.dp_attention = true;
                o.drafts.source = DraftSource::kLayer;
              }),
              HasSubstr("drafts of a layer or a model are not supported with data-parallel attention"));
  EXPECT_THAT(refusal([](EngineOptions& o) { o.drafts.most_tokens = 0; }), HasSubstr("0 is not accepted; 1 to 64 is"));
  EXPECT_THAT(refusal([](EngineOptions& o) { o.drafts.most_tokens = 65; }),
              HasSubstr("speculative_num_draft_tokens: 65 is not accepted; 1 to 64 is"));
}

}  // namespace
}  // namespace tessera
