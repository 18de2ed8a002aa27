// Catches: tokens computed twice or never, rows, slots and positions of the wrong sequence, a sequence that overtakes
// or starves, a chunk above its limit, a sampled id taken from a row that another step has overwritten, and pages
// leaked.
#include "tessera/engine/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <sstream>

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::int64_t kPageSize = 4;

std::unique_ptr<Sequence> sequence(std::int64_t id, std::int64_t prompt, std::int64_t new_tokens, bool score = false) {
  auto made = std::make_unique<Sequence>();
  made->id = RequestId(id);
  for (std::int64_t i = 0; i < prompt; ++i) made->request.prompt.emplace_back(static_cast<std::int32_t>(100 * id + i));
  made->request.max_new_tokens = new_tokens;
  made->request.score = score;
  made->tokens = made->request.prompt;
  made->seed = id * 7;
  return made;
}

ScheduledBatch next_step(Scheduler& scheduler) {
  ScheduledBatch step;
  scheduler.next(step);
  return step;
}

// What the engine does with the forward: every generating row gets a token; finished ones leave.
std::vector<std::int64_t> finish_step(Scheduler& scheduler, const ScheduledBatch& step) {
  scheduler.mark_submitted(step);
  std::vector<std::int64_t> finished;
  for (const ScheduledBatch::Entry& entry : step.entries) {
    Sequence& s = *entry.sequence;
    bool done = false;
    if (s.request.score) {
      done = s.computed == s.prompt_tokens();
    } else if (entry.num_rows > 0) {
      Scheduler::settle(entry, TokenId(static_cast<std::int32_t>(1000 + entry.next_token)));
      done = s.generated() >= s.request.max_new_tokens;
    }
    if (done) finished.push_back(s.id.value());
  }
  for (const std::int64_t id : finished) EXPECT_NE(scheduler.remove(RequestId(id)), nullptr);
  return finished;
}

// "1:8 2:3*": sequence 1 gets 8 tokens, 2 gets 3 and wants a row.
std::string shown(const ScheduledBatch& step) {
  std::ostringstream text;
  for (const ScheduledBatch::Entry& entry : step.entries) {
    text << (text.tellp() > 0 ? " " : "") << entry.sequence->id.value() << ":" << entry.new_tokens;
    for (std::int64_t i = 0; i < entry.num_rows; ++i) text << "*";
  }
  return text.str();
}
std::vector<std::string> all_steps(Scheduler& scheduler) {
  std::vector<std::string> steps;
  while (!scheduler.idle() && steps.size() < 100) {
    const ScheduledBatch step = next_step(scheduler);
    steps.push_back(shown(step));
    finish_step(scheduler, step);
  }
  return steps;
}

Scheduler make(SchedulerOptions options, std::int64_t pages = 100) { return {options, PagePool(pages, kPageSize)}; }

TEST(Scheduler, ALongPromptIsComputedInChunks) {
  Scheduler scheduler = make({.chunk = 8});
  scheduler.add(sequence(1, 20, 3));
  EXPECT_THAT(all_steps(scheduler), ElementsAre("1:8", "1:8", "1:4*", "1:1*", "1:1*"));
}

TEST(Scheduler, DecodesComeFirstAndPromptsFillTheChunk) {
  Scheduler scheduler = make({.chunk = 8});
  scheduler.add(sequence(1, 3, 4));
  EXPECT_EQ(shown(next_step(scheduler)), "1:3*");
  scheduler = make({.chunk = 8});
  scheduler.add(sequence(1, 3, 4));
  scheduler.add(sequence(2, 12, 2));
  EXPECT_THAT(all_steps(scheduler), ElementsAre("1:3* 2:5", "1:1* 2:7*", "1:1* 2:1*", "1:1*"));
}

TEST(Scheduler, ScoredAndGeneratingSequencesHaveForwardsOfTheirOwn) {
  Scheduler scheduler = make({.chunk = 8});
  scheduler.add(sequence(1, 3, 0, true));
  scheduler.add(sequence(2, 2, 2));
  scheduler.add(sequence(3, 2, 0, true));
  EXPECT_THAT(all_steps(scheduler), ElementsAre("1:3*** 3:2**", "2:2*", "2:1*"));
}

TEST(Scheduler, AdmitsInOrderAndNobodyOvertakes) {
  Scheduler scheduler = make({.chunk = 64}, 6);  // five pages of four tokens
  scheduler.add(sequence(1, 8, 5));              // 12 tokens' worth: three pages
  scheduler.add(sequence(2, 12, 1));             // three: must wait
  scheduler.add(sequence(3, 1, 1));              // one: would fit, and waits for 2
  const std::vector<std::string> steps = all_steps(scheduler);
  EXPECT_THAT(steps, ElementsAre("1:8*", "1:1*", "1:1*", "1:1*", "1:1*", "2:12* 3:1*"));
  EXPECT_EQ(scheduler.pages().num_free(), 5);
}

TEST(Scheduler, RunsNoMoreThanItMay) {
  Scheduler scheduler = make({.chunk = 64, .max_running = 2});
  for (int id = 1; id <= 3; ++id) scheduler.add(sequence(id, 2, 2));
  EXPECT_THAT(all_steps(scheduler), ElementsAre("1:2* 2:2*", "1:1* 2:1*", "3:2*", "3:1*"));
}

TEST(Scheduler, IdleWithoutSequences) {
  Scheduler scheduler = make({});
  EXPECT_TRUE(scheduler.idle());
  EXPECT_THAT(next_step(scheduler).entries, IsEmpty());
  EXPECT_EQ(scheduler.remove(RequestId(1)), nullptr);
  scheduler.add(sequence(1, 2, 2));
  EXPECT_FALSE(scheduler.idle());
}

TEST(Scheduler, RemovingReturnsPagesWhereverTheSequenceIs) {
  Scheduler scheduler = make({.chunk = 8, .max_running = 1});
  scheduler.add(sequence(1, 20, 3));
  scheduler.add(sequence(2, 4, 3));
  next_step(scheduler);
  EXPECT_LT(scheduler.pages().num_free(), 99);
  EXPECT_EQ(scheduler.remove(RequestId(2))->id, RequestId(2));
  EXPECT_EQ(scheduler.remove(RequestId(1))->id, RequestId(1));
  EXPECT_EQ(scheduler.pages().num_free(), 99);
  EXPECT_TRUE(scheduler.idle());
}

TEST(Scheduler, SamplingRowsAreTheSequences) {
  Scheduler scheduler = make({.chunk = 64});
  std::unique_ptr<Sequence> one = sequence(1, 5, 3);
  one->request.sampling = {
      .temperature = 0.5, .top_k = std::numeric_limits<std::int64_t>::max(), .top_p = 0.25, .seed = 4};
  one->seed = 4;
  scheduler.add(std::move(one));
  ScheduledBatch step = next_step(scheduler);
  ASSERT_EQ(step.sampling.size(), 1u);
  EXPECT_EQ(step.sampling[0].temperature, 0.5F);
  EXPECT_EQ(step.sampling[0].top_k, std::numeric_limits<std::int32_t>::max());
  EXPECT_EQ(step.sampling[0].top_p, 0.25F);
  EXPECT_EQ(step.sampling[0].seed, 4);
  EXPECT_EQ(step.sampling[0].position, 5) << "of the token to come";
  finish_step(scheduler, step);
  EXPECT_EQ(next_step(scheduler).sampling[0].position, 6);
}

// What a naive reader of the batch expects, token by token, kept beside the scheduler.
class NaiveModel {
 public:
  // "" where the step is as it must be.
  std::string check(const ScheduledBatch& step, const SchedulerOptions& options) {
    const ForwardBatch& batch = step.batch;
    if (!batch.check().ok()) return batch.check().message();
    if (batch.num_tokens() > options.chunk) return "above the chunk";
    if (batch.num_requests() > options.max_running) return "above max_running";
    if (step.sampling.size() != batch.wanted_rows.size()) return "sampling rows";
    std::set<SlotId> slots;
    std::map<PageId, RequestId> owners;
    std::size_t token = 0;
    std::size_t row = 0;
    std::map<std::int32_t, std::int32_t> sampled;  // row of this step → the id it samples, as finish_step makes it
    for (std::size_t b = 0; b < step.entries.size(); ++b) {
      const ScheduledBatch::Entry& entry = step.entries[b];
      const Sequence& s = *entry.sequence;
      if (s.request.score != step.wants_logits) return "scored beside generating";
      if (s.computed != computed_[s.id]) return "computed";
      computed_[s.id] += entry.new_tokens;
      if (batch.query_lens[b] != entry.new_tokens || batch.kv_lens[b] != computed_[s.id]) return "lengths";
      if (entry.first_row != static_cast<std::int64_t>(row)) return "first row";
      const CacheGroupBatch& group = batch.groups[0];
      if (static_cast<std::int64_t>(group.page_tables[b].size()) * kPageSize < computed_[s.id]) return "pages";
      for (const PageId page : group.page_tables[b])
        if (page.value() < 1 || !owners.emplace(page, s.id).second) return "page of two owners";
      for (std::int64_t position = s.computed; position < computed_[s.id]; ++position, ++token) {
        const auto at = static_cast<std::size_t>(position);
        if (batch.positions[token] != position) return "position";
        const std::int32_t id =
            batch.input_rows[token] < 0 ? batch.input_ids[token].value() : last_ids_[batch.input_rows[token]];
        if (id != s.tokens[at].value()) return "token " + std::to_string(position) + " is taken from a stale row";
        const PageId page = group.page_tables[b][at / kPageSize];
        if (group.slots[token].value() != page.value() * kPageSize + position % kPageSize) return "slot";
        if (!slots.insert(group.slots[token]).second) return "slot of two tokens";
        const bool last = position + 1 == static_cast<std::int64_t>(s.tokens.size());
        if (!s.request.score && !last) continue;
        if (row >= batch.wanted_rows.size() || batch.wanted_rows[row] != static_cast<std::int32_t>(token)) return "row";
        sampled[static_cast<std::int32_t>(row)] = static_cast<std::int32_t>(1000 + s.tokens.size());
        ++row;
      }
    }
    if (token != batch.input_ids.size() || row != batch.wanted_rows.size()) return "more than its entries";
    if (!step.wants_logits)
      for (const auto& [r, id] : sampled) last_ids_[r] = id;
    return "";
  }

 private:
  std::map<RequestId, std::int64_t> computed_;
  std::map<std::int32_t, std::int32_t> last_ids_;  // as InputBuffers keeps them: a step overwrites its rows only
};

// Runs random arrivals and cancellations to the end; the first fault, or "".
std::string run_random(std::uint64_t seed, SchedulerOptions options, std::int64_t pages) {
  std::mt19937_64 random(seed);
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  };
  Scheduler scheduler = make(options, pages);
  NaiveModel naive;
  std::int64_t next_id = 1;
  for (int step = 0; step < 400 || !scheduler.idle(); ++step) {
    if (step > 20000) return "does not come to an end";
    if (step < 400 && below(3) == 0) {
      const bool score = below(5) == 0;
      scheduler.add(sequence(next_id++, 1 + below(20), score ? 0 : 1 + below(12), score));
    }
    if (step < 400 && below(20) == 0) scheduler.remove(RequestId(below(next_id)));
    const bool idle = scheduler.idle();
    const ScheduledBatch batch = next_step(scheduler);
    if (batch.entries.empty() != idle) return "a step without tokens";
    if (idle) continue;
    if (std::string fault = naive.check(batch, options); !fault.empty())
      return fault + " in step " + std::to_string(step) + " of seed " + std::to_string(seed) + ": " + shown(batch);
    finish_step(scheduler, batch);
  }
  if (scheduler.pages().num_free() != scheduler.pages().num_usable()) return "pages are lost";
  return "";
}

TEST(Scheduler, AgreesWithANaiveModelOnRandomArrivals) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    EXPECT_EQ(run_random(seed, {.chunk = 16, .max_running = 8}, 40), "");
    EXPECT_EQ(run_random(seed, {.chunk = 64, .max_running = 3}, 12), "");
    EXPECT_EQ(run_random(seed, {.chunk = 8, .max_running = 8}, 200), "");
  }
}

// A decode that waits for another step would read a row that others overwrote meanwhile.
TEST(Scheduler, AgreesWithANaiveModelWhereNotAllDecodesFitAChunk) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    ASSERT_EQ(run_random(seed, {.chunk = 3, .max_running = 8}, 200), "");
    ASSERT_EQ(run_random(seed, {.chunk = 1, .max_running = 4}, 200), "");
  }
}

TEST(Scheduler, AScoredSequenceDoesNotWaitForEver) {
  Scheduler scheduler = make({.chunk = 8, .max_running = 4});
  scheduler.add(sequence(1, 3, 30));
  next_step(scheduler);
  scheduler.add(sequence(2, 4, 0, true));
  bool scored = false;
  for (std::int64_t id = 3; id < 200 && !scored; ++id) {
    scheduler.add(sequence(id, 2, 2));  // there is always something to generate
    const ScheduledBatch step = next_step(scheduler);
    for (const std::int64_t finished : finish_step(scheduler, step)) scored |= finished == 2;
  }
  EXPECT_TRUE(scored);
}

TEST(Scheduler, EveryCacheGroupHasSlotsAndPages) {
  Scheduler scheduler = make({.chunk = 64, .num_cache_groups = 2});
  scheduler.add(sequence(1, 6, 2));
  const ScheduledBatch step = next_step(scheduler);
  ASSERT_EQ(step.batch.groups.size(), 2u);
  EXPECT_EQ(step.batch.groups[0].slots, step.batch.groups[1].slots);
  EXPECT_EQ(step.batch.groups[1].slots.size(), 6u);
  EXPECT_EQ(step.batch.groups[1].page_tables[0].size(), 2u);
}

}  // namespace
}  // namespace tessera
