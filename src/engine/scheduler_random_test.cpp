// Catches: tokens computed twice or never, rows, slots and positions of the wrong sequence, a sampled id taken from a
// row that another step has overwritten, pages leaked, and keys and values of other tokens read from shared, evicted or
// preempted pages. Random arrivals, priorities, common prefixes and cancellations against a naive model of the memory.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "tessera/engine/scheduler.h"
#include "tessera/engine/scheduler_test_util.h"

namespace tessera {
namespace {

using test::kPageSize;
using test::shown;

// What a naive reader of the batch expects, token by token, and what it finds in the KV cache.
class NaiveMemory {
 public:
  // "" where the step is as it must be.
  std::string check(const ScheduledBatch& step, const SchedulerOptions& options) {
    const ForwardBatch& batch = step.batch;
    if (!batch.check().ok()) return batch.check().message();
    if (batch.num_tokens() > options.chunk) return "above the chunk";
    if (batch.num_requests() > options.max_running) return "above max_running";
    token_ = 0;
    written_.clear();
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
    const std::vector<PageId>& pages = batch.groups[0].page_tables[b];
    if (static_cast<std::int64_t>(pages.size()) * kPageSize < end) return "pages";
    const auto slot_of = [&](std::int64_t position) {
      return pages[static_cast<std::size_t>(position / kPageSize)].value() * kPageSize + position % kPageSize;
    };
    std::uint64_t prefix = 0;  // of the tokens up to a position
    for (std::int64_t position = 0; position < end; ++position) {
      // A token that is still to be sampled is known by its place alone.
      const bool pending = position >= static_cast<std::int64_t>(s.tokens.size()) - s.pending;
      const auto token =
          static_cast<std::int32_t>(pending ? 1000 + position : s.tokens[static_cast<std::size_t>(position)].value());
      prefix = prefix * 0x9e3779b97f4a7c15ULL + static_cast<std::uint64_t>(token) + 1;
      const std::int64_t slot = slot_of(position);
      if (position < s.computed) {
        if (content_[slot] != prefix) return "position " + std::to_string(position) + " holds other tokens";
        continue;
      }
      if (batch.positions[token_] != position) return "position";
      const std::int32_t id =
          batch.input_rows[token_] < 0 ? batch.input_ids[token_].value() : last_ids_[batch.input_rows[token_]];
      if (id != token) return "token " + std::to_string(position) + " is taken from a stale row";
      if (batch.groups[0].slots[token_].value() != slot || slot < kPageSize) return "slot";
      if (!written_.insert(slot).second) return "slot of two tokens";
      content_[slot] = prefix;
      ++token_;
    }
    const bool samples = !s.request.score && end == static_cast<std::int64_t>(s.tokens.size());
    if ((entry.row >= 0) != samples) return "a row too many or too few";
    if (samples && batch.wanted_rows[static_cast<std::size_t>(entry.row)] != static_cast<std::int32_t>(token_ - 1))
      return "row";
    return "";
  }

  std::map<std::int64_t, std::uint64_t> content_;  // slot → all tokens up to the one it holds
  std::set<std::int64_t> written_;
  std::map<std::int32_t, std::int32_t> last_ids_;  // as InputBuffers keeps them: a step overwrites its rows only
  std::size_t token_ = 0;
};

struct Load {
  std::uint64_t seed;
  SchedulerOptions options;
  std::int64_t pages;
  bool overlap;      // a step is scheduled before the one before it is settled
  bool cut = false;  // to captured sizes
};

// Captured sizes 5, 10, 15 …
std::int64_t fit(std::int64_t tokens) { return tokens < 5 ? tokens : tokens - tokens % 5; }

// As many tokens as `fit` wants, unless decodes are more than half of them.
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
        scheduler_(load.options, PagePool(load.pages, kPageSize), load.cut ? FitTokens(fit) : FitTokens()) {}

  // The first fault, or "".
  std::string run() {
    constexpr int kArrivals = 400;
    for (int step = 0; step < kArrivals || !scheduler_.idle() || !flying_.entries.empty(); ++step) {
      if (step > 40000) return "does not come to an end";
      if (step < kArrivals && below(3) == 0) scheduler_.add(arrival());
      if (step < kArrivals && below(20) == 0) drop(RequestId(below(next_id_)));
      ScheduledBatch batch;
      scheduler_.next(batch);
      if (batch.entries.empty() && flying_.entries.empty() && !scheduler_.idle()) return "a step without tokens";
      if (std::string fault = memory_.check(batch, load_.options); !fault.empty())
        return fault + " in step " + std::to_string(step) + " of seed " + std::to_string(load_.seed) + ": " +
               shown(batch);
      if (load_.cut && !fits(batch)) return "prompts that do not fit: " + shown(batch);
      scheduler_.mark_submitted(batch);
      if (load_.overlap) std::swap(batch, flying_);
      settle(batch);
    }
    EngineStats stats;
    scheduler_.report(stats);
    if (stats.used_pages != 0) return "pages are lost";
    scheduler_.flush_prefixes();
    if (scheduler_.pages().num_free() != scheduler_.pages().num_usable()) return "cached pages are lost";
    preemptions = stats.preemptions;
    split_chunks = stats.split_chunks;
    cached_tokens = stats.cached_tokens;
    return "";
  }

  std::int64_t preemptions = 0;
  std::int64_t cached_tokens = 0;
  std::int64_t split_chunks = 0;

 private:
  std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(n)); }

  std::unique_ptr<Sequence> arrival() {
    const bool score = below(5) == 0;
    auto made = test::sequence(next_id_++, 1 + below(20), score ? 0 : 1 + below(12), score);
    // Few beginnings, so that many are shared; they part somewhere.
    const std::int64_t family = below(4);
    const std::int64_t common = below(20);
    for (std::size_t i = 0; i < made->request.prompt.size(); ++i) {
      if (static_cast<std::int64_t>(i) < common)
        made->request.prompt[i] = TokenId(static_cast<std::int32_t>(family * 50 + static_cast<std::int64_t>(i)));
    }
    made->tokens = made->request.prompt;
    made->request.priority = below(3);
    if (below(6) == 0) made->request.logprobs.prompt = 0;
    return made;
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
    const Load loads[] = {{seed, {.chunk = 16, .max_running = 8}, 40, GetParam()},
                          {seed, {.chunk = 64, .max_running = 3}, 10, GetParam()},
                          {seed, {.chunk = 8, .max_running = 8}, 200, GetParam()},
                          {seed, {.chunk = 16, .max_running = 8, .prefix_cache = false}, 14, GetParam()}};
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

// With and without room for all decodes.
TEST_P(SchedulerLoads, AgreeWherePromptsAreCutToFit) {
  std::int64_t split_chunks = 0;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    const Load loads[] = {{seed, {.chunk = 16, .max_running = 8}, 40, GetParam(), true},
                          {seed, {.chunk = 64, .max_running = 3}, 10, GetParam(), true},
                          {seed, {.chunk = 8, .max_running = 8, .prefix_cache = false}, 200, GetParam(), true},
                          {seed, {.chunk = 3, .max_running = 8}, 200, GetParam(), true}};
    for (const Load& load : loads) {
      RandomLoad run(load);
      ASSERT_EQ(run.run(), "");
      split_chunks += run.split_chunks;
    }
  }
  EXPECT_GT(split_chunks, 1000) << "the loads are too light to try it";
}

// A decode that waits for another step would read a row that others overwrote meanwhile.
TEST_P(SchedulerLoads, AgreeWhereNotAllDecodesFitAChunk) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    ASSERT_EQ(RandomLoad({seed, {.chunk = 3, .max_running = 8}, 200, GetParam()}).run(), "");
    ASSERT_EQ(RandomLoad({seed, {.chunk = 1, .max_running = 4}, 200, GetParam()}).run(), "");
  }
}

}  // namespace
}  // namespace tessera
