// Catches: sequences that overtake earlier ones, starve or are missing in a batch; a chunk above its limit; leaked
// pages; preemption of the wrong sequence; and a prefix computed twice, or reused although its logits are wanted.
#include "tessera/engine/schedule/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tessera/engine/schedule/scheduler_test_util.h"

namespace tessera {
namespace {

using test::all_steps;
using test::finish_step;
using test::kPageSize;
using test::next_step;
using test::sequence;
using test::shown;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class SchedulerTest : public ::testing::Test {
 protected:
  Scheduler& make(SchedulerOptions options, std::int64_t pages = 100, FitTokens fit = {}, FillingTokens filling = {}) {
    scheduler_ =
        std::make_unique<Scheduler>(options, paged_cache(pages, kPageSize), std::move(fit), std::move(filling));
    return *scheduler_;
  }

  // Returns the number of pages that are free, or cached and free on demand.
  std::int64_t available() const {
    EngineStats stats;
    scheduler_->report(stats);
    return stats.cache_groups[0].usable_pages - stats.cache_groups[0].used_pages;
  }

  std::int64_t preemptions() const {
    EngineStats stats;
    scheduler_->report(stats);
    return stats.preemptions;
  }

  std::unique_ptr<Scheduler> scheduler_;
};

TEST_F(SchedulerTest, ALongPromptIsComputedInChunks) {
  Scheduler& scheduler = make({.limits = {.max_tokens = 8}});
  scheduler.add(sequence(1, 20, 3));
  EXPECT_THAT(all_steps(scheduler), ElementsAre("1:8", "1:8", "1:4*", "1:1*", "1:1*"));
}

TEST_F(SchedulerTest, DecodesComeFirstAndPromptsFillTheChunk) {
  Scheduler& scheduler = make({.limits = {.max_tokens = 8}});
  scheduler.add(sequence(1, 3, 4));
  scheduler.add(sequence(2, 12, 2));
  EXPECT_THAT(all_steps(scheduler), ElementsAre("1:3* 2:5", "1:1* 2:7*", "1:1* 2:1*", "1:1*"));
}

TEST_F(SchedulerTest, ComputesDeviceFillingPromptsOneByOne) {
  Scheduler& scheduler = make({.limits = {.max_tokens = 24}}, 100, {}, [] { return 8; });
  for (const std::int64_t id : {1, 2, 3, 4}) scheduler.add(sequence(id, id == 1 ? 20 : 4, 2));
  EXPECT_THAT(all_steps(scheduler), ElementsAre("1:20*", "1:1* 2:4* 3:4*", "3:1* 2:1* 4:4*", "4:1*"));
}

TEST_F(SchedulerTest, ALongPromptTakesAThirdBesideDecodes) {
  Scheduler& scheduler = make({.limits = {.max_tokens = 12}}, 100, {}, [] { return 2; });
  scheduler.add(sequence(1, 2, 5));
  scheduler.add(sequence(2, 12, 1));
  EXPECT_THAT(all_steps(scheduler), ElementsAre("1:2*", "1:1* 2:4", "1:1* 2:4", "1:1* 2:4*", "1:1*"));
}

// In a pipeline, decodes form groups. While the tokens of one group are awaited, the next step has the other group.
TEST_F(SchedulerTest, DecodesTakeTurnsInAPipeline) {
  Scheduler& scheduler = make({.limits = {.max_tokens = 16}, .turns = 2});
  for (const std::int64_t id : {1, 2, 3}) scheduler.add(sequence(id, 3, 4));
  finish_step(scheduler, next_step(scheduler));
  const ScheduledBatch first = next_step(scheduler);
  EXPECT_EQ(shown(first), "1:1* 2:1*");
  scheduler.mark_submitted(first);
  const ScheduledBatch second = next_step(scheduler);
  EXPECT_EQ(shown(second), "3:1*") << "the tokens of the others are not known";
  scheduler.mark_submitted(second);
  EXPECT_EQ(shown(next_step(scheduler)), "") << "of nobody is the last token known";
  for (const ScheduledBatch::Entry& entry : first.entries) Scheduler::settle(entry, TokenId(7));
  const ScheduledBatch third = next_step(scheduler);
  EXPECT_EQ(shown(third), "1:1* 2:1*");
  for (const std::int32_t row : third.batch.input_rows) EXPECT_EQ(row, -1) << "the first stage has no sampled ids";
  EXPECT_EQ(third.batch.input_ids, std::vector<TokenId>(2, TokenId(7)));
}

// If steps are not scheduled ahead, a step takes all decodes, because turns would starve some sequences.
TEST_F(SchedulerTest, OneStepInFlightTakesAllDecodes) {
  Scheduler& scheduler = make({.limits = {.max_tokens = 16}, .turns = 2});
  for (const std::int64_t id : {1, 2, 3, 4}) scheduler.add(sequence(id, 3, 4));
  finish_step(scheduler, next_step(scheduler));
  ScheduledBatch step;
  scheduler.next(step, /*in_turns=*/false);
  EXPECT_EQ(shown(step), "1:1* 2:1* 3:1* 4:1*");
}

// Everything is computed again, because other sequences may have found a lost step's results in the prefix cache.
TEST_F(SchedulerTest, ComputesEverythingAgain) {
  Scheduler& scheduler = make({.limits = {.max_tokens = 16}});
  for (const std::int64_t id : {1, 2}) scheduler.add(sequence(id, 5, 3));
  finish_step(scheduler, next_step(scheduler));
  scheduler.compute_again();
  EXPECT_EQ(shown(next_step(scheduler)), "1:6* 2:6*") << "prompts and what was sampled, from the first token on";
}

// A prompt's chunks need no sampled tokens, so they follow one another at once.
TEST_F(SchedulerTest, APromptsChunksFollowInSeveralSteps) {
  Scheduler& scheduler = make({.limits = {.max_tokens = 8}, .turns = 2});
  scheduler.add(sequence(1, 20, 3));
  for (const char* const step : {"1:8", "1:8", "1:4*", ""}) {
    const ScheduledBatch made = next_step(scheduler);
    EXPECT_EQ(shown(made), step);
    scheduler.mark_submitted(made);
  }
}

// When a sequence ends, the last sequence takes its place, and the others keep theirs.
TEST_F(SchedulerTest, DecodesKeepTheirPlaces) {
  Scheduler& scheduler = make({.limits = {.max_tokens = 16}});
  for (const std::int64_t id : {1, 2, 3, 4}) scheduler.add(sequence(id, 3, id == 2 ? 2 : 4));
  for (const char* const step : {"1:3* 2:3* 3:3* 4:3*", "1:1* 2:1* 3:1* 4:1*"}) {
    const ScheduledBatch made = next_step(scheduler);
    EXPECT_EQ(shown(made), step);
    finish_step(scheduler, made);
  }
  scheduler.add(sequence(5, 3, 3));
  EXPECT_THAT(all_steps(scheduler), ElementsAre("1:1* 4:1* 3:1* 5:3*", "1:1* 4:1* 3:1* 5:1*", "5:1*"));
}

TEST_F(SchedulerTest, CutsTheLastPromptToACapturedSize) {
  Scheduler& scheduler =
      make({.limits = {.max_tokens = 16}}, 100, [](std::int64_t tokens) { return std::min<std::int64_t>(tokens, 8); });
  scheduler.add(sequence(1, 3, 3));
  scheduler.add(sequence(2, 4, 1));
  scheduler.add(sequence(3, 9, 1));
  EXPECT_THAT(all_steps(scheduler), ElementsAre("1:3* 2:4* 3:1", "1:1* 3:7", "1:1* 3:1*"));
  EngineStats stats;
  scheduler.report(stats);
  EXPECT_EQ(stats.split_chunks, 2);
}

TEST_F(SchedulerTest, NeitherCutsDecodesNorDelaysPromptsForThem) {
  std::vector<std::int64_t> asked;
  const auto fit = [&](std::int64_t tokens) {
    asked.push_back(tokens);
    return std::min<std::int64_t>(tokens, 2);
  };
  Scheduler& scheduler = make({.limits = {.max_tokens = 16}}, 100, fit);
  for (int id = 1; id <= 2; ++id) scheduler.add(sequence(id, 1, 3));
  finish_step(scheduler, next_step(scheduler));
  finish_step(scheduler, next_step(scheduler));
  EXPECT_THAT(asked, ElementsAre(2)) << "a pure decode is not asked about";
  scheduler.add(sequence(3, 6, 1));
  EXPECT_EQ(shown(next_step(scheduler)), "1:1* 2:1* 3:6*");
  EXPECT_THAT(asked, ElementsAre(2, 8));
}

TEST_F(SchedulerTest, NeverCutsPromptsToAFewTokens) {
  const auto fit = [](std::int64_t tokens) { return std::min<std::int64_t>(tokens, 4); };
  Scheduler& scheduler = make({.limits = {.max_tokens = 16}}, 100, fit);
  for (int id = 1; id <= 3; ++id) scheduler.add(sequence(id, 1, 3));
  finish_step(scheduler, next_step(scheduler));
  scheduler.add(sequence(4, 9, 2));
  EXPECT_EQ(shown(next_step(scheduler)), "1:1* 2:1* 3:1* 4:9*") << "one token a step otherwise";
  ASSERT_NE(scheduler.remove(RequestId(3), false), nullptr);
  EXPECT_EQ(shown(next_step(scheduler)), "1:1* 2:1* 4:2") << "half of the step is theirs";
}

TEST_F(SchedulerTest, ScoredSequencesWantRowsBesideSampledOnes) {
  Scheduler& scheduler = make({.limits = {.max_tokens = 8}});
  scheduler.add(sequence(1, 3, 0, true));
  scheduler.add(sequence(2, 2, 2));
  scheduler.add(sequence(3, 2, 0, true));
  const ScheduledBatch step = next_step(scheduler);
  EXPECT_EQ(shown(step), "1:3+++ 2:2* 3:2++");
  EXPECT_THAT(step.batch.wanted_rows, ElementsAre(4, 0, 1, 2, 5, 6)) << "sampled rows come first";
  EXPECT_EQ(step.entries[2].wanted_from, 4);
  EXPECT_TRUE(step.wants_logits);
  EXPECT_THAT(finish_step(scheduler, step), ElementsAre(1, 3));
  EXPECT_THAT(all_steps(scheduler), ElementsAre("2:1*"));
}

TEST_F(SchedulerTest, PromptLogprobsWantTheRowsBeforeTheirTokens) {
  Scheduler& scheduler = make({.limits = {.max_tokens = 4}});
  auto wanted = sequence(1, 6, 1);
  wanted->request.logprobs = {.output = 2, .prompt = 5, .prompt_start = 2};
  scheduler.add(std::move(wanted));
  const ScheduledBatch first = next_step(scheduler);
  EXPECT_EQ(shown(first), "1:4+++");
  EXPECT_THAT(first.batch.wanted_rows, ElementsAre(1, 2, 3)) << "row 1 tells of token 2";
  EXPECT_THAT(first.logprob_targets, ElementsAre(TokenId(102), TokenId(103), TokenId(104)));
  EXPECT_EQ(first.top_logprobs, 5);
  finish_step(scheduler, first);
  const ScheduledBatch second = next_step(scheduler);
  EXPECT_EQ(shown(second), "1:2*+") << "the last row tells of no token of the prompt";
  EXPECT_THAT(second.batch.wanted_rows, ElementsAre(1, 0));
  EXPECT_EQ(second.logprob_targets[1], TokenId(105));
}

TEST_F(SchedulerTest, AdmissionKeepsTheOrder) {
  Scheduler& scheduler = make({.limits = {.max_tokens = 64}}, 6);  // page 0 is reserved: five pages of four tokens
  scheduler.add(sequence(1, 15, 2));                               // needs four pages
  scheduler.add(sequence(2, 8, 1));                                // needs two pages, so it must wait
  scheduler.add(sequence(3, 1, 1));                                // needs one page, but waits behind 2
  EXPECT_THAT(all_steps(scheduler), ElementsAre("1:15*", "1:1*", "2:8* 3:1*"));
  EXPECT_EQ(available(), 5);
}

TEST_F(SchedulerTest, RunsNoMoreRequestsThanItsLimit) {
  Scheduler& scheduler = make({.limits = {.max_tokens = 64}, .max_running = 2});
  for (int id = 1; id <= 3; ++id) scheduler.add(sequence(id, 2, 2));
  EXPECT_THAT(all_steps(scheduler), ElementsAre("1:2* 2:2*", "1:1* 2:1*", "3:2*", "3:1*"));
}

TEST_F(SchedulerTest, IdleWithoutSequences) {
  Scheduler& scheduler = make({});
  EXPECT_TRUE(scheduler.idle());
  EXPECT_THAT(next_step(scheduler).entries, IsEmpty());
  EXPECT_EQ(scheduler.remove(RequestId(1), false), nullptr);
  scheduler.add(sequence(1, 2, 2));
  EXPECT_FALSE(scheduler.idle());
}

TEST_F(SchedulerTest, RemovingReturnsPagesWhereverTheSequenceIs) {
  Scheduler& scheduler = make({.limits = {.max_tokens = 8}, .max_running = 1});
  scheduler.add(sequence(1, 20, 3));
  scheduler.add(sequence(2, 4, 3));
  next_step(scheduler);
  EXPECT_LT(available(), 99);
  EXPECT_EQ(scheduler.remove(RequestId(2), false)->id, RequestId(2));
  EXPECT_EQ(scheduler.remove(RequestId(1), true)->id, RequestId(1));
  EXPECT_EQ(available(), 99) << "nothing of a failed sequence is kept";
  EXPECT_TRUE(scheduler.idle());
}

TEST_F(SchedulerTest, SamplingParametersAreThoseOfTheSequence) {
  Scheduler& scheduler = make({.limits = {.max_tokens = 64}});
  std::unique_ptr<Sequence> one = sequence(1, 5, 3);
  one->request.sampling = {.temperature = 0.5,
                           .top_k = std::numeric_limits<std::int64_t>::max(),
                           .top_p = 0.25,
                           .min_p = 0.125,
                           .choice = 3};
  one->seed = 4;
  scheduler.add(std::move(one));
  ScheduledBatch step = next_step(scheduler);
  ASSERT_EQ(step.sampling.size(), 1u);
  EXPECT_EQ(step.sampling[0].temperature, 0.5F);
  EXPECT_EQ(step.sampling[0].top_k, std::numeric_limits<std::int32_t>::max());
  EXPECT_EQ(step.sampling[0].top_p, 0.25F);
  EXPECT_EQ(step.sampling[0].min_p, 0.125F);
  EXPECT_EQ(step.sampling[0].seed, 4);
  EXPECT_EQ(step.sampling[0].choice, 3);
  EXPECT_EQ(step.sampling[0].position, 5) << "of the token that is sampled";
  finish_step(scheduler, step);
  EXPECT_EQ(next_step(scheduler).sampling[0].position, 6);
}

TEST_F(SchedulerTest, EveryCacheGroupHasSlotsAndPages) {
  CacheOptions cache = paged_cache(100, kPageSize);
  cache.groups.push_back({.num_pages = 50});
  Scheduler scheduler({.limits = {.max_tokens = 64}}, cache);
  scheduler.add(sequence(1, 6, 2));
  const ScheduledBatch step = next_step(scheduler);
  ASSERT_EQ(step.batch.groups.size(), 2u);
  EXPECT_EQ(step.batch.groups[0].slots, step.batch.groups[1].slots);
  EXPECT_EQ(step.batch.groups[1].slots.size(), 6u);
  EXPECT_EQ(step.batch.groups[1].page_tables[0].pages.size(), 2u);
}

// Makes a sequence. The prompts of all sequences that this function makes begin alike.
std::unique_ptr<Sequence> alike(std::int64_t id, std::int64_t prompt, std::int64_t new_tokens) {
  auto made = sequence(1, prompt, new_tokens);
  made->id = RequestId(id);
  made->order = id;
  return made;
}

TEST_F(SchedulerTest, TakesARepeatedPromptFromTheCache) {
  Scheduler& scheduler = make({.limits = {.max_tokens = 64}});
  scheduler.add(alike(1, 10, 3));
  EXPECT_THAT(all_steps(scheduler), ElementsAre("1:10*", "1:1*", "1:1*"));
  scheduler.add(alike(2, 10, 1));
  EXPECT_THAT(all_steps(scheduler), ElementsAre("2:2*")) << "two pages of four are known";
  scheduler.add(alike(3, 8, 1));
  EXPECT_THAT(all_steps(scheduler), ElementsAre("3:4*")) << "the last token is computed in any case";
  // The first sequence's output is in the cache too, so the cache has 10 + 2 computed tokens.
  auto longer = alike(4, 10, 1);
  for (const int token : {1010, 1011, 7}) longer->request.prompt.emplace_back(token);
  longer->tokens = longer->request.prompt;
  scheduler.add(std::move(longer));
  EXPECT_THAT(all_steps(scheduler), ElementsAre("4:1*"));
  EngineStats stats;
  scheduler.report(stats);
  EXPECT_EQ(stats.prompt_tokens, 10 + 10 + 8 + 13);
  EXPECT_EQ(stats.cached_tokens, 8 + 4 + 12);
  scheduler.flush_prefixes();
  scheduler.add(alike(5, 10, 1));
  EXPECT_THAT(all_steps(scheduler), ElementsAre("5:10*"));
}

TEST_F(SchedulerTest, APrefixThatIsBeingComputedIsWaitedFor) {
  Scheduler& scheduler = make({.limits = {.max_tokens = 8}});
  scheduler.add(alike(1, 14, 1));
  scheduler.add(alike(2, 14, 1));
  scheduler.add(sequence(3, 2, 1));
  EXPECT_THAT(all_steps(scheduler), ElementsAre("1:8", "1:6* 3:2*", "2:2*")) << "3 shares nothing and goes ahead";
}

TEST_F(SchedulerTest, WantedRowsAreComputedThoughTheyAreCached) {
  Scheduler& scheduler = make({.limits = {.max_tokens = 64}});
  scheduler.add(alike(1, 12, 1));
  all_steps(scheduler);
  auto from_start = alike(2, 12, 1);
  from_start->request.logprobs.prompt = 0;
  auto from_nine = alike(3, 12, 1);
  from_nine->request.logprobs = {.prompt = 0, .prompt_start = 9};
  auto hidden = alike(4, 12, 1);
  hidden->request.return_hidden_states = true;
  auto embedded = alike(5, 12, 1);
  embedded->request.input_embeds.resize(12);
  scheduler.grow_embeddings(12);
  for (auto* s : {&from_start, &from_nine, &hidden, &embedded}) scheduler.add(std::move(*s));
  EXPECT_EQ(shown(next_step(scheduler)), "2:12*+++++++++++ 3:4*+++ 4:12* 5:12*");
}

TEST_F(SchedulerTest, WithoutThePrefixCacheEverythingIsComputed) {
  Scheduler& scheduler = make({.limits = {.max_tokens = 64}, .prefix_cache = false});
  for (int id = 1; id <= 2; ++id) scheduler.add(alike(id, 12, 1));
  EXPECT_THAT(all_steps(scheduler), ElementsAre("1:12* 2:12*"));
  EXPECT_EQ(available(), 99);
}

TEST_F(SchedulerTest, TheLastSequenceIsPreemptedWherePagesRunOut) {
  Scheduler& scheduler = make({.limits = {.max_tokens = 64}}, 6);
  scheduler.add(sequence(1, 4, 12));  // has one page and grows to four
  scheduler.add(sequence(2, 4, 8));   // has one page and grows to three
  std::vector<std::string> steps = all_steps(scheduler);
  EXPECT_EQ(preemptions(), 1);
  // Sequence 2 is preempted with 9 tokens. Two of its 4-token pages stay cached, and sequence 1 takes one of them.
  EXPECT_THAT(steps, ElementsAre("1:4* 2:4*", "1:1* 2:1*", "1:1* 2:1*", "1:1* 2:1*", "1:1* 2:1*", "1:1*", "1:1*",
                                 "1:1*", "1:1*", "1:1*", "1:1*", "1:1*", "2:5*", "2:1*", "2:1*"))
      << "what 2 had computed was evicted for 1";
  EXPECT_EQ(available(), 5);
}

TEST_F(SchedulerTest, HigherPrioritiesComeFirstAndPreemptLowerOnes) {
  Scheduler& scheduler = make({.limits = {.max_tokens = 64}, .max_running = 2});
  scheduler.add(sequence(1, 2, 3));
  scheduler.add(sequence(2, 2, 3));
  EXPECT_EQ(shown(next_step(scheduler)), "1:2* 2:2*");
  auto urgent = sequence(3, 2, 1);
  urgent->request.priority = 5;
  auto low = sequence(4, 2, 1);
  low->request.priority = -1;
  scheduler.add(std::move(low));
  scheduler.add(std::move(urgent));
  EXPECT_THAT(all_steps(scheduler), ElementsAre("3:2* 1:2*", "1:1* 2:2*", "1:1* 2:1*", "2:1* 4:2*"));
}

TEST_F(SchedulerTest, APreemptedSequenceWaitsForItsPendingToken) {
  Scheduler& scheduler = make({.limits = {.max_tokens = 64}, .max_running = 1});
  scheduler.add(sequence(1, 2, 3));
  const ScheduledBatch flying = next_step(scheduler);
  scheduler.mark_submitted(flying);
  auto urgent = sequence(2, 2, 1);
  urgent->request.priority = 1;
  scheduler.add(std::move(urgent));
  const ScheduledBatch second = next_step(scheduler);
  EXPECT_EQ(shown(second), "2:2*");
  Scheduler::settle(flying.entries[0], TokenId(7));
  finish_step(scheduler, second);
  const ScheduledBatch again = next_step(scheduler);
  EXPECT_EQ(shown(again), "1:3*");
  EXPECT_THAT(again.batch.input_ids, ElementsAre(TokenId(100), TokenId(101), TokenId(7)));
  EXPECT_THAT(again.batch.input_rows, ElementsAre(-1, -1, -1)) << "its row was overwritten by 2's";
}

TEST_F(SchedulerTest, ExpiredSequencesAreFound) {
  Scheduler& scheduler = make({.max_running = 1});
  const auto now = Sequence::Clock::now();
  for (int id = 1; id <= 3; ++id) {
    auto made = sequence(id, 2, 2);
    if (id > 1) made->deadline = now + std::chrono::seconds(id);
    scheduler.add(std::move(made));
  }
  next_step(scheduler);
  std::vector<RequestId> expired;
  scheduler.find_expired(now + std::chrono::milliseconds(2500), expired);
  EXPECT_THAT(expired, ElementsAre(RequestId(2)));
}

}  // namespace
}  // namespace tessera
