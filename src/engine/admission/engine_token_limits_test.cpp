// Catches: a bad word that still appears; a bad word's last token that is forbidden although the word's other tokens do
// not precede it; a chosen token that is not allowed; and a request that gets a forbidden token when all tokens are
// forbidden.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "tessera/engine/engine_test_util.h"
#include "tessera/engine/grammar/grammar.h"

namespace tessera {
namespace {

using test::request;
using test::run_one;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

class EngineTokenLimits : public test::EngineRuns {};
INSTANTIATE_TEST_SUITE_P(, EngineTokenLimits, ::testing::Bool(), test::overlap_name);

bool has_sequence(const std::vector<TokenId>& ids, const std::vector<TokenId>& part) {
  return std::search(ids.begin(), ids.end(), part.begin(), part.end()) != ids.end();
}

TEST_P(EngineTokenLimits, ABadTokenNeverComes) {
  const std::unique_ptr<Engine> engine = make();
  const std::vector<TokenId> plain = run_one(*engine, request(6, 20)).output_ids;
  Request without = request(6, 20);
  without.sampling.bad_words = {{plain[3]}};
  const std::vector<TokenId> ids = run_one(*engine, without).output_ids;
  EXPECT_THAT(ids, Not(Contains(plain[3])));
  const auto before = std::find(plain.begin(), plain.end(), plain[3]) - plain.begin();
  EXPECT_TRUE(std::equal(ids.begin(), ids.begin() + before, plain.begin()));
}

TEST_P(EngineTokenLimits, ForbidsOnlyTheLastTokenOfABadSequence) {
  const std::unique_ptr<Engine> engine = make();
  const std::vector<TokenId> plain = run_one(*engine, request(6, 20)).output_ids;
  Request without = request(6, 20);
  const std::vector<TokenId> word(plain.begin() + 2, plain.begin() + 5);
  without.sampling.bad_words = {word};
  const std::vector<TokenId> ids = run_one(*engine, without).output_ids;
  EXPECT_FALSE(has_sequence(ids, word));
  EXPECT_TRUE(std::equal(ids.begin(), ids.begin() + 4, plain.begin())) << "the tokens before the last one are free";
  EXPECT_NE(ids[4], plain[4]);
  // Forbids a sequence that does not occur; this changes nothing.
  TokenId absent(0);
  while (std::find(plain.begin(), plain.end(), absent) != plain.end()) absent = TokenId(absent.value() + 1);
  without.sampling.bad_words = {{plain[0], plain[1], absent}, {absent, plain[1]}};
  EXPECT_EQ(run_one(*engine, without).output_ids, plain);
}

TEST_P(EngineTokenLimits, OnlyAllowedTokensAreChosen) {
  const std::unique_ptr<Engine> engine = make();
  const std::vector<TokenId> plain = run_one(*engine, request(6, 20)).output_ids;
  Request limited = request(6, 20);
  limited.sampling.allowed_tokens = {TokenId(77), TokenId(31), TokenId(511)};
  EXPECT_THAT(run_one(*engine, limited).output_ids, Each(::testing::AnyOf(TokenId(77), TokenId(31), TokenId(511))));
  limited.sampling.temperature = 2;
  limited.sampling.seed = 3;
  EXPECT_THAT(run_one(*engine, limited).output_ids, Each(::testing::AnyOf(TokenId(77), TokenId(31), TokenId(511))));
  // Allows exactly the tokens that the model chooses; the output stays the same.
  Request same = request(6, 20);
  same.sampling.allowed_tokens = plain;
  EXPECT_EQ(run_one(*engine, same).output_ids, plain);
}

TEST_P(EngineTokenLimits, OtherRequestsOfTheBatchAreNotLimited) {
  const std::unique_ptr<Engine> engine = make();
  const std::vector<TokenId> plain = run_one(*engine, request(6, 12)).output_ids;
  Request limited = request(6, 12);
  limited.sampling.allowed_tokens = {TokenId(77)};
  Request without = request(6, 12);
  without.sampling.bad_words = {{plain[0], plain[1]}};
  const std::vector<Request> all = {request(6, 12), limited, without, request(6, 12)};
  const Result<std::vector<Completion>> done = engine->run(all);
  ASSERT_TRUE(done.ok()) << done.status().to_string();
  EXPECT_EQ((*done)[0].output_ids, plain);
  EXPECT_THAT((*done)[1].output_ids, Each(TokenId(77)));
  EXPECT_FALSE(has_sequence((*done)[2].output_ids, without.sampling.bad_words[0]));
  EXPECT_EQ((*done)[3].output_ids, plain);
}

TEST_P(EngineTokenLimits, WhereNoTokenIsLeftTheRequestFails) {
  const std::unique_ptr<Engine> engine = make();
  Request none = request(6, 8);
  none.sampling.allowed_tokens = {TokenId(77)};
  none.sampling.bad_words = {{TokenId(77), TokenId(77), TokenId(77)}};
  const Result<std::vector<Completion>> done = engine->run({&none, 1});
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(done.status().message(), HasSubstr("no token is left to be chosen as output token 2"));
  EXPECT_EQ(run_one(*engine, request(6, 8)).output_ids.size(), 8u);
}

// Bans every token with an "a" in two requests. The grammar of the request `some` also allows "b", so its text has no
// "a". The grammar of the request `none` allows only "a", so no token is left. Only `none` fails, and its error says
// why.
TEST_P(EngineTokenLimits, BadWordsHoldWithAGrammarToo) {
  if (!GrammarCompiler::available()) GTEST_SKIP() << "built without xgrammar";
  EngineOptions options = test::demo_options();
  options.overlap_schedule = GetParam();
  const std::unique_ptr<Engine> engine = test::make_engine(options);
  const Tokenizer& tokenizer = *engine->tokenizer();
  auto compiler = GrammarCompiler::create(tokenizer, engine->config().vocab_size, engine->end_ids());
  ASSERT_TRUE(compiler.ok()) << compiler.status().to_string();
  const auto grammar = [&](const std::string& regex) {
    return (*compiler)->compile({GrammarSpec::Kind::kRegex, regex}).value();
  };
  Request some = request(6, 8);
  some.grammar = grammar("[ab]{4}");
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const auto token = tokenizer.id_to_token(TokenId(id));
    if (token && token->find('a') != std::string::npos) some.sampling.bad_words.push_back({TokenId(id)});
  }
  ASSERT_LE(some.sampling.bad_words.size(), kMaxBadWords);
  Request none = some;
  none.grammar = grammar("a{4}");
  const RequestId fails = engine->submit(none).value();
  const RequestId goes_on = engine->submit(some).value();
  std::map<std::int64_t, RequestEvent> last;
  std::string text;
  while (!engine->idle()) {
    const std::span<RequestEvent> events = engine->step().value();
    for (const RequestEvent& event : events) {
      if (event.request == goes_on) text += event.text;
      if (event.finish != FinishReason::kNone) last[event.request.value()] = event;
    }
  }
  const Status& error = last[fails.value()].error;
  EXPECT_EQ(error.code(), StatusCode::kInvalidArgument) << error.to_string();
  EXPECT_THAT(error.message(), HasSubstr("no token is left to be chosen as output token 0: the grammar"));
  EXPECT_TRUE(last[goes_on.value()].error.ok()) << last[goes_on.value()].error.to_string();
  EXPECT_EQ(text, "bbbb");
}

Request with_limit(Request limited, std::int64_t tokens) {
  limited.reasoning_limit = {.tokens = tokens, .opened = true, .closing_ids = {TokenId(3), TokenId(4)}};
  return limited;
}

TEST_P(EngineTokenLimits, TheLimitEndsTheReasoningAndNothingElse) {
  const std::unique_ptr<Engine> engine = make();
  const std::vector<TokenId> plain = run_one(*engine, request(6, 20)).output_ids;
  const std::vector<std::vector<TokenId>> outputs =
      test::outputs_of(*engine, {with_limit(request(6, 20), 1), request(6, 20), with_limit(request(6, 20), 7),
                                 with_limit(request(6, 20), 20), with_limit(test::sampled(6, 20, 3), 19)});
  ASSERT_EQ(outputs.size(), 5u);
  EXPECT_EQ(outputs[1], plain) << "its neighbours are limited";
  EXPECT_EQ(outputs[3], plain) << "the output is as long as its limit";
  for (const std::size_t i : {0, 2, 4}) {
    const std::ptrdiff_t limit = i == 0 ? 1 : i == 2 ? 7 : 19;
    ASSERT_EQ(outputs[i].size(), 20u);
    if (i < 4) {
      EXPECT_TRUE(std::equal(plain.begin(), plain.begin() + limit, outputs[i].begin()));
    }
    EXPECT_EQ(outputs[i][static_cast<std::size_t>(limit)], TokenId(3));
    if (limit + 1 < 20) {
      EXPECT_EQ(outputs[i][static_cast<std::size_t>(limit) + 1], TokenId(4));
    }
  }
  ASSERT_FALSE(has_sequence(plain, {TokenId(3), TokenId(4)}));
}

TEST_P(EngineTokenLimits, ATextIsWrittenInsteadOfTheReasoning) {
  EngineOptions options = test::demo_options();
  options.overlap_schedule = GetParam();
  const std::unique_ptr<Engine> engine = test::make_engine(options);
  Request limited = request(6, 20);
  limited.reasoning_limit = {.tokens = 4, .opening = "<think>", .closing = "</think>"};
  limited.reasoning_limit->closing_ids = *engine->tokenizer()->encode("</think>");
  EXPECT_THAT(run_one(*engine, limited).text, Not(HasSubstr("</think>"))) << "the model begins no reasoning";
  limited.reasoning_limit->opened = true;
  const std::string text = run_one(*engine, limited).text;
  EXPECT_THAT(text, HasSubstr("</think>"));
  EXPECT_EQ(text.find("</think>"), text.rfind("</think>"));
}

TEST_P(EngineTokenLimits, AnErrorNamesTheLimitWhoseMarkIsForbidden) {
  const std::unique_ptr<Engine> engine = make();
  const auto failure = [&](const Request& limited) { return engine->run({&limited, 1}).status(); };
  Request limited = with_limit(request(6, 20), 5);
  limited.reasoning_limit->closing = "</think>";
  EXPECT_TRUE(failure(limited).ok());
  Request without = limited;
  without.sampling.bad_words = {{TokenId(4)}};
  Request longer = limited;
  longer.stop.ids = {TokenId(3)};
  longer.stop.min_new_tokens = 10;
  for (const auto& [bad, token] : {std::pair(without, 4), std::pair(longer, 3)}) {
    const Status error = failure(bad);
    EXPECT_EQ(error.code(), StatusCode::kInvalidArgument) << error.to_string();
    EXPECT_THAT(error.message(), HasSubstr("reached its limit of 5 tokens"));
    EXPECT_THAT(error.message(), HasSubstr("token " + std::to_string(token) + " of its closing mark \"</think>\""));
    EXPECT_THAT(error.message(), HasSubstr("accepted: bad_words and min_tokens that allow this mark"));
  }
}

TEST(EngineTokenLimitsSubmit, RefusesLimitsOfReasoningThatCannotHold) {
  const std::unique_ptr<Engine> engine = test::make_engine();
  const auto refusal = [&](const Request& bad) { return engine->submit(bad).status().message(); };
  EXPECT_THAT(refusal(with_limit(request(6, 8), 0)), HasSubstr("the limit of the reasoning is 0; accepted is 1 or"));
  Request bad = with_limit(request(6, 8), 4);
  bad.sampling.allowed_tokens = {TokenId(1)};
  EXPECT_THAT(refusal(bad), HasSubstr("the reasoning is limited to 4 tokens, and allowed_tokens constrain the output"));
  bad = with_limit(request(6, 8), 4);
  bad.reasoning_limit->closing_ids = {TokenId(512)};
  EXPECT_THAT(refusal(bad), HasSubstr("a token that ends the reasoning has id 512"));
  bad.reasoning_limit->closing_ids.clear();
  EXPECT_THAT(refusal(bad), HasSubstr("the limit of the reasoning has no tokens that end it"));
}

TEST(EngineTokenLimitsSubmit, RefusesInvalidTokenLists) {
  const std::unique_ptr<Engine> engine = test::make_engine();
  const auto refusal = [&](const SamplingParams& sampling) {
    Request bad = request(6, 8);
    bad.sampling = sampling;
    return engine->submit(bad).status().message();
  };
  EXPECT_THAT(refusal({.bad_words = {{}}}), HasSubstr("a sequence of bad_words has 0 tokens"));
  EXPECT_THAT(refusal({.bad_words = {{TokenId(1), TokenId(512)}}}), HasSubstr("a token of bad_words has id 512"));
  EXPECT_THAT(refusal({.bad_words = std::vector(kMaxBadWords + 1, std::vector{TokenId(1)})}),
              HasSubstr("at most 1024"));
  EXPECT_THAT(refusal({.allowed_tokens = {TokenId(-1)}}), HasSubstr("an allowed token has id -1"));
}

}  // namespace
}  // namespace tessera
