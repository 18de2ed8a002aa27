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
#include "tessera/engine/schedule/scheduler.h"
#include "tessera/engine/schedule/scheduler_test_util.h"

namespace tessera {
namespace {

using test::kPageSize;
using test::shown;

// A naive model of the KV cache. It records whose tokens each slot holds after the steps so far. For each slot that a
// batch reads, it checks that the batch finds its own tokens there.
class NaiveMemory {
 public:
  explicit NaiveMemory(const CacheOptions& cache) : cache_(cache) {}

  // Returns "" if the step is correct, and otherwise a text that names the fault.
  std::string check(const ScheduledBatch& step, const SchedulerOptions& options) {
    const ForwardBatch& batch = step.batch;
    if (!batch.check().ok()) return batch.check().message();
    if (batch.num_tokens() > options.limits.max_tokens) return "above the chunk";
    if (batch.num_requests() > options.max_running) return "above max_running";
    token_ = 0;
    written_.clear();
    for (const SlotCopy& copy : batch.slot_copies) {
      if (!cache_.groups[copy.group].is_state()) return "a copy in a group without states";
      content_[{copy.group, copy.to.value()}] = content_[{copy.group, copy.from.value()}];
      ++copies_;
    }
    std::size_t rows = 0;
    for (std::size_t b = 0; b < step.entries.size(); ++b) {
      if (std::string fault = check_entry(step, b); !fault.empty()) return fault;
      rows += static_cast<std::size_t>(step.entries[b].prompt_rows) + (step.entries[b].row >= 0 ? 1 : 0);
    }
    if (token_ != batch.input_ids.size() || rows != batch.wanted_rows.size()) return "more than its entries";
    for (std::size_t row = 0; row < step.sampling.size(); ++row)
      last_ids_[static_cast<std::int32_t>(row)] = 1000 + step.sampling[row].position;
    return "";
  }

 private:
  std::string check_entry(const ScheduledBatch& step, std::size_t b) {
    const ForwardBatch& batch = step.batch;
    const ScheduledBatch::Entry& entry = step.entries[b];
    const Sequence& s = *entry.sequence;
    const std::int64_t end = s.computed + entry.new_tokens;
    if (batch.query_lens[b] != entry.new_tokens || batch.kv_lens[b] != end) return "lengths";
    if (entry.new_tokens < 1) return "no token";
    const std::vector<std::uint64_t> prefixes = prefixes_of(s, end);
    for (std::size_t g = 0; g < cache_.groups.size(); ++g) {
      std::string fault = cache_.groups[g].is_state() ? check_state(batch.groups[g], g, b, s, prefixes)
                                                      : check_pages(batch.groups[g], g, b, s, prefixes);
      if (!fault.empty()) return cache_.groups[g].name + ": " + fault;
    }
    for (std::int64_t position = s.computed; position < end; ++position, ++token_) {
      if (batch.positions[token_] != position) return "position";
      const std::int32_t id =
          batch.input_rows[token_] < 0 ? batch.input_ids[token_].value() : last_ids_[batch.input_rows[token_]];
      if (id != token_at(s, position)) return "token " + std::to_string(position) + " is taken from a stale row";
    }
    const bool samples = !s.request.score && end == static_cast<std::int64_t>(s.tokens.size());
    if ((entry.row >= 0) != samples) return "a row too many or too few";
    if (samples && batch.wanted_rows[static_cast<std::size_t>(entry.row)] != static_cast<std::int32_t>(token_ - 1))
      return "row";
    return "";
  }

  // Returns a number for the token. It depends only on the position if the token is not sampled yet.
  static std::int32_t token_at(const Sequence& s, std::int64_t position) {
    const bool pending = position >= static_cast<std::int64_t>(s.tokens.size()) - s.pending;
    return static_cast<std::int32_t>(pending ? 1000 + position : s.tokens[static_cast<std::size_t>(position)].value());
  }

  // Returns, for each position before `end`, a hash of the tokens up to it.
  static std::vector<std::uint64_t> prefixes_of(const Sequence& s, std::int64_t end) {
    std::vector<std::uint64_t> prefixes;
    std::uint64_t prefix = 0;
    for (std::int64_t position = 0; position < end; ++position) {
      prefix = prefix * 0x9e3779b97f4a7c15ULL + static_cast<std::uint64_t>(token_at(s, position)) + 1;
      prefixes.push_back(prefix);
    }
    return prefixes;
  }

  std::string check_pages(const CacheGroupBatch& group, std::size_t g, std::size_t b, const Sequence& s,
                          const std::vector<std::uint64_t>& prefixes) {
    const auto end = static_cast<std::int64_t>(prefixes.size());
    const std::int64_t window = cache_.groups[g].window;
    const std::span<const PageId> pages = group.page_tables[b].pages;
    if (static_cast<std::int64_t>(pages.size()) * kPageSize < end) return "pages";
    const auto held = std::count_if(pages.begin(), pages.end(), [](PageId page) { return page != PageId(0); });
    const std::int64_t chunk_pages = pages_for(end - s.computed - 1, kPageSize);
    if (window > 0 && held > window_pages(window, kPageSize) + chunk_pages) return "more pages than the window's";
    // All earlier tokens that the first row attends to must be in the cache.
    for (std::int64_t position = window > 0 ? std::max<std::int64_t>(s.computed - window + 1, 0) : 0; position < end;
         ++position) {
      const PageId page = pages[static_cast<std::size_t>(position / kPageSize)];
      const std::int64_t slot = page.value() * kPageSize + position % kPageSize;
      std::uint64_t& content = content_[{g, slot}];
      const std::uint64_t prefix = prefixes[static_cast<std::size_t>(position)];
      if (position < s.computed) {
        if (content != prefix) return "position " + std::to_string(position) + " holds other tokens";
        continue;
      }
      const std::size_t token = token_ + static_cast<std::size_t>(position - s.computed);
      if (group.slots[token].value() != slot || slot < kPageSize) return "slot";
      if (!written_.insert({g, slot}).second) return "slot of two tokens";
      content = prefix;
    }
    return "";
  }

  // Checks that the sequence's slot holds the state after its computed tokens (any content if none is computed), that
  // the new tokens name this slot, and that no other sequence of the step has it. Then records the state after the new
  // tokens.
  std::string check_state(const CacheGroupBatch& group, std::size_t g, std::size_t b, const Sequence& s,
                          const std::vector<std::uint64_t>& prefixes) {
    const std::int32_t slot = group.page_tables[b].pages[0].value();
    if (slot < 1 || slot >= cache_.groups[g].num_pages) return "slot";
    std::uint64_t& content = content_[{g, slot}];
    if (s.computed > 0 && content != prefixes[static_cast<std::size_t>(s.computed - 1)])
      return "the state is not that of the tokens before position " + std::to_string(s.computed);
    for (std::size_t i = static_cast<std::size_t>(s.computed); i < prefixes.size(); ++i)
      if (group.slots[token_ + i - static_cast<std::size_t>(s.computed)].value() != slot) return "a token's slot";
    if (!written_.insert({g, slot}).second) return "slot of two sequences";
    content = prefixes.back();
    return "";
  }

  using Place = std::pair<std::size_t, std::int64_t>;  // a cache group and a slot in it
  const CacheOptions& cache_;
  std::map<Place, std::uint64_t> content_;  // hash of all tokens up to the token in the slot
  std::set<Place> written_;
  std::map<std::int32_t, std::int32_t> last_ids_;  // [row]; like in InputBuffers, a step overwrites only its own rows
  std::size_t token_ = 0;

 public:
  std::int64_t copies_ = 0;
};

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
    return "";
  }

  std::int64_t preemptions = 0;
  std::int64_t cached_tokens = 0;
  std::int64_t split_chunks = 0;
  std::int64_t copies = 0;

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
      }
    }
    EXPECT_GT(preemptions, 10) << "family " << family << ": the loads are too light to try it";
    EXPECT_GT(cached_tokens, 100) << "family " << family;
    const std::vector<CacheGroupOptions> groups = families(0)[family].groups;
    const bool has_states = std::any_of(groups.begin(), groups.end(), [](const auto& g) { return g.is_state(); });
    EXPECT_EQ(copies > 100, has_states) << "family " << family;
  }
}

}  // namespace
}  // namespace tessera
