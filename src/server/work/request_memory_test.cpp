// Catches: an estimate that is below the memory that a request uses, and request fields that hold memory but are not
// counted.
#include "tessera/server/work/request_memory.h"

#include <gtest/gtest.h>

#include "tessera/base/json.h"
#include "tessera/engine/grammar/grammar.h"
#include "tessera/server/test_model.h"

namespace tessera {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

std::int64_t held(Request request) {
  ApiJob job;
  job.requests.push_back(std::move(request));
  return held_bytes(job, /*num_logits=*/1000, /*hidden_size=*/64);
}

Request prompt_of(std::size_t tokens) {
  Request request{.prompt = std::vector<TokenId>(tokens, TokenId(1))};
  request.stop.max_new_tokens = 1;
  return request;
}

TEST(RequestMemory, ReadingCountsValuesButNotTextsInside) {
  EXPECT_LT(reading_bytes(R"({"model": "m", "prompt": "hello"})"), 8192);
  std::string zeros = "[0";
  for (int i = 0; i < 1'000'000; ++i) zeros += ",0";
  EXPECT_GT(reading_bytes(zeros + "]"), 1'000'000 * static_cast<std::int64_t>(3 * sizeof(Json)));
  const std::string commas = '"' + std::string(1'000'000, ',') + '"';
  EXPECT_LT(reading_bytes(commas), 4 * kMiB);
  EXPECT_LT(reading_bytes(R"("\",[[[[[[")"), 500) << "an escaped quote does not end a text";
  EXPECT_GT(reading_bytes(R"("\\",[[[[[[")"), 800) << "an escaped backslash does not escape the quote after it";
  EXPECT_LT(reading_bytes(R"(["a\\\",[[[[[[)"), 500) << "a text without an end";
  std::string messages = "[";
  for (int i = 0; i < 100'000; ++i) messages += R"({"role":"user","content":"a"},)";
  EXPECT_GT(reading_bytes(messages), 180 * kMiB) << "1900 bytes were measured for each";
}

TEST(RequestMemory, EverythingThatARequestHoldsCounts) {
  const std::int64_t bare = held(prompt_of(1000));
  EXPECT_GT(held(prompt_of(11'000)), bare + 40'000);
  Request embeds = prompt_of(1000);
  embeds.input_embeds.resize(64'000);
  EXPECT_GE(held(embeds), bare + 256'000);
  Request stops = prompt_of(1000);
  stops.stop.texts = {std::string(50'000, 'x')};
  EXPECT_GE(held(stops), bare + 50'000);
  Request words = prompt_of(1000);
  words.sampling.bad_words.assign(100, std::vector<TokenId>(50, TokenId(1)));
  words.sampling.allowed_tokens.assign(900, TokenId(1));
  EXPECT_GE(held(words), bare + 100 * 200 + 3600);
}

TEST(RequestMemory, AGrammarCountsOnceForAllChoices) {
  if (!GrammarCompiler::available()) GTEST_SKIP() << "this build has no grammars";
  const auto compiler = *GrammarCompiler::create(test::demo_tokenizer(), 2048, std::vector{TokenId(0)});
  Request request = prompt_of(10);
  ApiJob job;
  job.requests = {request, request};
  const std::int64_t bare = held_bytes(job, 1000, 64);
  request.grammar = *compiler->compile({GrammarSpec::Kind::kRegex, "([a-z]{3}x){1,9}"});
  job.requests = {request, request};
  EXPECT_GT(grammar_bytes(*request.grammar), 1000);
  EXPECT_EQ(held_bytes(job, 1000, 64), bare + grammar_bytes(*request.grammar));
}

TEST(RequestMemory, KeptGrammarsGetASmallPartOfTheBudget) {
  EXPECT_EQ(kept_grammar_bytes(512 * kMiB), static_cast<std::size_t>(32 * kMiB));
  EXPECT_EQ(kept_grammar_bytes(64 * 1024 * kMiB), kMaxGrammarMemory);
}

TEST(RequestMemory, ResultsGrowWithRowsAndAlternatives) {
  const std::int64_t bare = held(prompt_of(1000));
  Request hidden = prompt_of(1000);
  hidden.return_hidden_states = true;
  EXPECT_GE(held(hidden), bare + 1001 * 64 * 4);
  hidden.last_hidden_state_only = true;
  EXPECT_LT(held(hidden), bare + 2 * kMiB);
  Request logprobs = prompt_of(1000);
  logprobs.logprobs.prompt = 20;
  EXPECT_GE(held(logprobs), bare + 1000 * 21 * 8);
  logprobs.logprobs.prompt_start = 999;
  EXPECT_LT(held(logprobs), bare + 2 * kMiB);
  Request output = prompt_of(1000);
  output.stop.max_new_tokens = 5000;
  output.logprobs.output = 5;
  EXPECT_GE(held(output), bare + 5000 * 6 * 50);
  Request score = prompt_of(1000);
  score.score = true;
  score.score_from = 990;
  EXPECT_GE(held(score), bare + 10 * 1000 * 4 - 100);
}

}  // namespace
}  // namespace tessera
