// Catches: tokens computed twice or never; rows, slots and positions of the wrong sequence; a sampled id read from a
// row that another step has overwritten; leaked pages; keys and values of wrong tokens, read from pages that are
// shared, evicted, preempted or outside the window; and a state of another sequence or position. Random arrivals,
// priorities, common prefixes, retentions and cancellations are checked against a naive model of the memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>

#include "tessera/engine/cache/device_tables_test_util.h"
#include "tessera/engine/schedule/naive_memory_test_util.h"
#include "tessera/engine/schedule/scheduler.h"
#include "tessera/engine/schedule/scheduler_test_util.h"

namespace tessera {
namespace {

using test::kPageSize;
using test::NaiveMemory;
using test::shown;

struct Load {
  std::uint64_t seed;
  SchedulerOptions options;
  CacheOptions cache;
  bool overlap;      // a step is scheduled before the previous one is settled
  bool cut = false;  // prompts are cut to captured sizes
};

CacheOptions paged(std::int64_t pages) { return paged_cache(pages, kPageSize); }

// Returns the largest captured size that is at most `tokens`. The captured sizes are 5, 10, 15, …. Below 5, returns
// `tokens`.
std::int64_t fit(std::int64_t tokens) { return tokens < 5 ? tokens : tokens - tokens % 5; }

// Returns whether the step has as many tokens as `fit` allows, or decodes take more than half of that number.
bool fits(const ScheduledBatch& step) {
  std::int64_t decodes = 0;
  for (const ScheduledBatch::Entry& entry : step.entries) decodes += entry.sequence->decodes() ? 1 : 0;
  const std::int64_t tokens = step.batch.num_tokens();
  return fit(tokens) == tokens || fit(tokens) < 2 * decodes;
}

class RandomLoad {
 public:
  explicit RandomLoad(const Load& load)
      : load_(load),
        random_(load.seed),
        scheduler_(load.options, load.cache, load.cut ? FitTokens(fit) : FitTokens()),
        memory_(load_.cache),
        tables_(load_.cache, load_.options.max_running) {}

  // Returns a text that names the first fault, or "" if there is none.
  std::string run() {
    constexpr int kArrivals = 400;
    for (int step = 0; step < kArrivals || !scheduler_.idle() || !flying_.entries.empty(); ++step) {
      if (step > 40000) return "does not come to an end";
      if (step < kArrivals && below(3) == 0) scheduler_.add(arrival());
      if (step < kArrivals && below(20) == 0) drop(RequestId(below(next_id_)));
      if (below(20) == 0) scheduler_.release_session(session());
      ScheduledBatch batch;
      scheduler_.next(batch);
      if (batch.entries.empty() && flying_.entries.empty() && !scheduler_.idle()) return "a step without tokens";
      if (std::string fault = memory_.check(batch, load_.options); !fault.empty())
        return fault + " in step " + std::to_string(step) + " of seed " + std::to_string(load_.seed) + ": " +
               shown(batch);
      // Hides some forwards from the device's page tables, as if these forwards had failed before they were planned.
      if (std::string fault = below(20) == 0 ? "" : tables_.check(batch.batch); !fault.empty())
        return fault + " in step " + std::to_string(step) + " of seed " + std::to_string(load_.seed);
      // Caches with sliding windows or recurrent states may make a step shorter, so their steps are not checked.
      const bool only_pages = load_.cache.groups.size() == 1 && load_.cache.groups[0].keeps_all();
      if (load_.cut && only_pages && !fits(batch)) return "prompts that do not fit: " + shown(batch);
      scheduler_.mark_submitted(batch);
      if (load_.overlap) std::swap(batch, flying_);
      settle(batch);
    }
    EngineStats stats;
    scheduler_.report(stats);
    if (stats.fullest_group().used_pages != 0) return "pages are lost";
    scheduler_.flush_prefixes();
    for (std::size_t g = 0; g < load_.cache.groups.size(); ++g) {
      const CacheGroupStats group = scheduler_.cache().stats(g);
      if (group.used_pages != 0 || group.cached_pages != 0) return "cached pages are lost";
    }
    preemptions = stats.preemptions;
    split_chunks = stats.split_chunks;
    cached_tokens = stats.cached_tokens;
    copies = memory_.copies_;
    checkpoints = memory_.checkpoints_;
    return "";
  }

  std::int64_t preemptions = 0;
  std::int64_t cached_tokens = 0;
  std::int64_t split_chunks = 0;
  std::int64_t copies = 0;
  std::int64_t checkpoints = 0;

 private:
  std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(n)); }

  std::unique_ptr<Sequence> arrival() {
    const bool score = below(5) == 0;
    auto made = test::sequence(next_id_++, 1 + below(20), score ? 0 : 1 + below(12), score);
    // Prompts share a few beginnings and differ from some position on.
    const std::int64_t family = below(4);
    const std::int64_t common = below(20);
    for (std::size_t i = 0; i < made->request.prompt.size(); ++i) {
      if (static_cast<std::int64_t>(i) < common)
        made->request.prompt[i] = TokenId(static_cast<std::int32_t>(family * 50 + static_cast<std::int64_t>(i)));
    }
    made->tokens = made->request.prompt;
    made->request.priority = below(3);
    if (below(6) == 0) made->request.logprobs.prompt = 0;
    if (below(2) == 0) {
      made->request.retention = {.session = session(), .seconds = below(5) == 0 ? 0 : 1000, .priority = 1 + below(3)};
    }
    return made;
  }

  // Returns the name of one of a few sessions, or none.
  std::string session() {
    const std::int64_t number = below(5);
    return number == 0 ? "" : std::to_string(number);
  }

  void drop(RequestId id) {
    const std::unique_ptr<Sequence> gone = scheduler_.remove(id, below(2) == 0);
    for (ScheduledBatch::Entry& entry : flying_.entries)
      if (entry.sequence == gone.get()) entry.sequence = nullptr;
  }

  void settle(const ScheduledBatch& batch) {
    for (const ScheduledBatch::Entry& entry : batch.entries) {
      if (entry.sequence == nullptr) continue;
      const RequestId id = entry.sequence->id;
      if (entry.row >= 0) Scheduler::settle(entry, TokenId(static_cast<std::int32_t>(1000 + entry.next_token)));
      const bool ended =
          entry.row >= 0
              ? entry.next_token + 1 - entry.sequence->prompt_tokens() >= entry.sequence->request.stop.max_new_tokens
              : entry.sequence->request.score && entry.position + entry.new_tokens == entry.sequence->prompt_tokens();
      if (!ended) continue;
      const std::unique_ptr<Sequence> gone = scheduler_.remove(id, false);
      for (ScheduledBatch::Entry& other : flying_.entries)
        if (other.sequence == gone.get()) other.sequence = nullptr;
    }
  }

  Load load_;
  std::mt19937_64 random_;
  Scheduler scheduler_;
  NaiveMemory memory_;
  test::DeviceTables tables_;
  ScheduledBatch flying_;
  std::int64_t next_id_ = 1;
};

class SchedulerLoads : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(, SchedulerLoads, ::testing::Bool(),
                         [](const auto& overlap) { return overlap.param ? "ahead" : "in_step"; });

TEST_P(SchedulerLoads, AgreeWithANaiveMemory) {
  std::int64_t preemptions = 0;
  std::int64_t cached_tokens = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Load loads[] = {
        {seed, {.limits = {.max_tokens = 16}, .max_running = 8}, paged(40), GetParam()},
        {seed, {.limits = {.max_tokens = 64}, .max_running = 3}, paged(10), GetParam()},
        {seed, {.limits = {.max_tokens = 8}, .max_running = 8}, paged(200), GetParam()},
        {seed, {.limits = {.max_tokens = 16}, .max_running = 8, .prefix_cache = false}, paged(14), GetParam()}};
    for (const Load& load : loads) {
      RandomLoad run(load);
      ASSERT_EQ(run.run(), "");
      preemptions += run.preemptions;
      cached_tokens += run.cached_tokens;
    }
  }
  EXPECT_GT(preemptions, 100) << "the loads are too light to try it";
  EXPECT_GT(cached_tokens, 1000);
}

// In some loads a step has room for all decodes, because max_tokens is at least max_running. In other loads it does
// not have this room.
TEST_P(SchedulerLoads, AgreeWherePromptsAreCutToFit) {
  std::int64_t split_chunks = 0;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    const Load loads[] = {
        {seed, {.limits = {.max_tokens = 16}, .max_running = 8}, paged(40), GetParam(), true},
        {seed, {.limits = {.max_tokens = 64}, .max_running = 3}, paged(10), GetParam(), true},
        {seed, {.limits = {.max_tokens = 8}, .max_running = 8, .prefix_cache = false}, paged(200), GetParam(), true},
        {seed, {.limits = {.max_tokens = 3}, .max_running = 8}, paged(200), GetParam(), true}};
    for (const Load& load : loads) {
      RandomLoad run(load);
      ASSERT_EQ(run.run(), "");
      split_chunks += run.split_chunks;
    }
  }
  EXPECT_GT(split_chunks, 1000) << "the loads are too light to try it";
}

// A decode may read its input id from the row of last_ids where an earlier step stored it. If a decode is left out of a
// step, other requests' ids may overwrite that row, so the decode must not read it later.
TEST_P(SchedulerLoads, AgreeWhereNotAllDecodesFitAChunk) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    ASSERT_EQ(RandomLoad({seed, {.limits = {.max_tokens = 3}, .max_running = 8}, paged(200), GetParam()}).run(), "");
    ASSERT_EQ(RandomLoad({seed, {.limits = {.max_tokens = 1}, .max_running = 4}, paged(200), GetParam()}).run(), "");
  }
}

// Returns the options of several caches. Together, the caches have groups of every kind. A group has about `pages`
// pages, or fewer if it keeps fewer tokens. Some caches have a group that keeps all tokens, and some do not.
std::vector<CacheOptions> families(std::int64_t pages) {
  using enum ir::CacheGroup::Kind;
  const CacheGroupOptions paged{.name = "paged", .num_pages = pages};
  const CacheGroupOptions latent{.name = "latent", .kind = kLatent, .num_pages = pages + 3};
  const CacheGroupOptions near{.name = "near", .kind = kWindow, .window = 5, .num_pages = pages * 2 / 3};
  const CacheGroupOptions far{.name = "far", .kind = kWindow, .window = 17, .num_pages = pages};
  const CacheGroupOptions state{.name = "state", .kind = kState, .num_pages = 1 + pages / 3};
  std::vector<CacheOptions> families;
  for (std::vector<CacheGroupOptions> groups :
       {std::vector{near}, {paged, near}, {far, paged, near}, {latent}, {state}, {paged, state}, {state, near, latent}})
    families.push_back({.groups = std::move(groups), .page_size = kPageSize});
  return families;
}

TEST_P(SchedulerLoads, AgreeForEveryKindOfCacheGroup) {
  const std::size_t count = families(0).size();
  for (std::size_t family = 0; family < count; ++family) {
    std::int64_t preemptions = 0;
    std::int64_t cached_tokens = 0;
    std::int64_t copies = 0;
    std::int64_t checkpoints = 0;
    for (std::uint64_t seed = 0; seed < 25; ++seed) {
      const Load loads[] = {
          {seed, {.limits = {.max_tokens = 16}, .max_running = 8}, families(40)[family], GetParam()},
          {seed, {.limits = {.max_tokens = 64}, .max_running = 3}, families(12)[family], GetParam()},
          {seed, {.limits = {.max_tokens = 8}, .max_running = 8}, families(200)[family], GetParam()},
          {seed, {.limits = {.max_tokens = 16}, .max_running = 8}, families(30)[family], GetParam(), true},
          {seed,
           {.limits = {.max_tokens = 16}, .max_running = 8, .prefix_cache = false},
           families(14)[family],
           GetParam()}};
      for (const Load& load : loads) {
        RandomLoad run(load);
        ASSERT_EQ(run.run(), "") << "family " << family;
        preemptions += run.preemptions;
        cached_tokens += run.cached_tokens;
        copies += run.copies;
        checkpoints += run.checkpoints;
      }
    }
    EXPECT_GT(preemptions, 10) << "family " << family << ": the loads are too light to try it";
    EXPECT_GT(cached_tokens, 100) << "family " << family;
    const std::vector<CacheGroupOptions> groups = families(0)[family].groups;
    const bool has_states = std::any_of(groups.begin(), groups.end(), [](const auto& g) { return g.is_state(); });
    EXPECT_EQ(copies > 100, has_states) << "family " << family;
    EXPECT_EQ(checkpoints > 100, has_states) << "family " << family;
  }
}

}  // namespace
}  // namespace tessera
