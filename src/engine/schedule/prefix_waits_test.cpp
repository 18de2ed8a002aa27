// Catches: a sequence that is admitted while another one computes its prefix; a sequence that waits for a prefix that
// is already cached; and repeated checks whose cost grows with the prompts' lengths.
#include "tessera/engine/schedule/prefix_waits.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <vector>

#include "tessera/engine/schedule/scheduler_test_util.h"

namespace tessera {
namespace {

constexpr std::int64_t kPage = test::kPageSize;

std::vector<std::int32_t> some_tokens(std::mt19937& random, const std::vector<std::int32_t>& begin, std::size_t count) {
  std::vector<std::int32_t> made(begin.begin(),
                                 begin.begin() + static_cast<std::ptrdiff_t>(random() % (begin.size() + 1)));
  while (made.size() < count) made.push_back(static_cast<std::int32_t>(random() % 2));
  return made;
}

std::unique_ptr<Sequence> of_tokens(std::int64_t id, const std::vector<std::int32_t>& tokens) {
  std::unique_ptr<Sequence> made = test::sequence(id, 0, 1);
  for (const std::int32_t token : tokens) made->request.prompt.emplace_back(token);
  made->tokens = made->request.prompt;
  return made;
}

// Decides what should_wait() should decide: compares the sequence with every running prompt token by token.
bool naively_waits(const Sequence& sequence, const PrefixTokens& reusable,
                   const std::vector<std::unique_ptr<Sequence>>& running, const CacheManager& cache) {
  std::int64_t shared = 0;
  for (const auto& other : running) {
    if (other->computed >= other->prompt_tokens()) continue;
    if (other->request.priority < sequence.request.priority) continue;
    shared = std::max(shared, common_prefix(reusable, {other->request.prompt, other->images}) / kPage);
  }
  return shared > 0 && shared > cache.count_known(reusable);
}

PrefixTokens all_but_one(const Sequence& sequence) {
  return {std::span(sequence.tokens).first(sequence.tokens.size() - 1), sequence.images};
}

// Simulates prompts of zeros and ones, many with the same beginning: they arrive, are computed page by page, and end.
// Checks that they wait exactly when naively_waits() says so.
void agrees_with_naive(CacheOptions options, std::uint32_t seed) {
  std::mt19937 random(seed);
  CacheManager cache(std::move(options));
  PrefixWaits waits(cache);
  std::vector<std::unique_ptr<Sequence>> running;
  std::vector<std::unique_ptr<Sequence>> waiting;
  const std::vector<std::int32_t> trunk = some_tokens(random, {}, 60);
  std::int64_t next_id = 1;
  std::int64_t admissions = 0;
  int waited = 0;
  int knew = 0;
  for (int step = 0; step < 2000; ++step) {
    if (waiting.size() < 12) {
      waiting.push_back(of_tokens(next_id++, some_tokens(random, trunk, 1 + random() % 70)));
      waiting.back()->request.priority = static_cast<int>(random() % 8 == 0);
    }
    waits.begin(running, [](const Sequence& s) { return s.computed < s.prompt_tokens(); });
    for (std::size_t i = 0; i < waiting.size();) {
      Sequence& sequence = *waiting[i];
      const PrefixTokens reusable = all_but_one(sequence);
      const bool expected = naively_waits(sequence, reusable, running, cache);
      ASSERT_EQ(waits.should_wait(sequence, reusable), expected) << "seed " << seed << ", step " << step;
      waited += expected ? 1 : 0;
      if (expected || running.size() == 4) {
        ++i;
        continue;
      }
      cache.find(sequence.cache, reusable);
      knew += sequence.cache.path.empty() ? 0 : 1;
      bool fits = true;
      for (std::size_t g = 0; g < cache.num_groups(); ++g)
        fits = fits && cache.needed(g, sequence.cache, std::ssize(sequence.tokens)) <= cache.available(g);
      if (!fits) {
        cache.release(sequence.cache);
        waits.forget_nodes();
        break;
      }
      cache.admit(sequence.cache, std::ssize(sequence.tokens), std::ssize(sequence.tokens));
      sequence.computed = sequence.cache.cached_pages() * kPage;
      sequence.admission = ++admissions;
      waits.forget_nodes();
      waits.add(sequence);
      running.push_back(std::move(waiting[i]));
      waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(i));
    }
    for (std::size_t i = running.size(); i-- > 0;) {
      Sequence& sequence = *running[i];
      const std::int64_t left = sequence.prompt_tokens() - sequence.computed;
      const auto wanted = std::min<std::int64_t>(left, static_cast<std::int64_t>(random() % 14));
      const std::int64_t count = cache.fitting(sequence.cache, sequence.computed, wanted);
      if (count > 0) {
        cache.take_pages(sequence.cache, std::ssize(sequence.tokens), sequence.computed + count);
        sequence.computed += count;
        cache.keep(sequence.cache, {std::span(sequence.tokens).first(static_cast<std::size_t>(sequence.computed))});
        if (sequence.cache.cached_pages() * kPage == sequence.computed) cache.add_checkpoint(sequence.cache);
        cache.leave_window(sequence.cache, sequence.computed);
      }
      if (sequence.computed < sequence.prompt_tokens() && random() % 16 != 0) continue;
      cache.release(sequence.cache);
      if (sequence.computed < sequence.prompt_tokens()) {  // the sequence was preempted
        sequence.computed = 0;
        sequence.prefix.forget_leader();
        waiting.insert(waiting.begin(), std::move(running[i]));
      }
      running.erase(running.begin() + static_cast<std::ptrdiff_t>(i));
    }
    if (random() % 64 == 0) cache.flush_prefixes();
    std::vector<SlotCopy> copies;
    cache.take_copies(copies);
  }
  EXPECT_GT(waited, 100);
  EXPECT_GT(knew, 100);
}

TEST(PrefixWaits, AgreesWithComparingAllPromptsTokenByToken) {
  using Kind = ir::CacheGroup::Kind;
  const CacheGroupOptions paged{.num_pages = 60};
  const CacheGroupOptions window{.name = "window", .kind = Kind::kWindow, .window = 9, .num_pages = 40};
  const CacheGroupOptions state{.name = "state", .kind = Kind::kState, .num_pages = 12};
  for (std::uint32_t seed = 1; seed <= 5; ++seed) {
    agrees_with_naive({.groups = {paged}, .page_size = kPage}, seed);
    agrees_with_naive({.groups = {paged, window}, .page_size = kPage}, seed);
    agrees_with_naive({.groups = {window}, .page_size = kPage}, seed);
    agrees_with_naive({.groups = {paged, state}, .page_size = kPage}, seed);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

// 2 000 requests wait for one prompt of 32 768 tokens, which is computed in chunks. Prints the time of a step.
TEST(PrefixWaits, AStepLooksAtNoPromptAgain) {
  constexpr std::int64_t kPrefix = 32'768;
  constexpr std::int64_t kWaiting = 2'000;
  Scheduler scheduler({.limits = {.max_tokens = 2'048}, .max_running = 256}, paged_cache(5'000, 16));
  for (std::int64_t id = 1; id <= kWaiting; ++id) {
    std::unique_ptr<Sequence> made = test::sequence(id, kPrefix + 8, 4);
    for (std::int64_t i = 0; i < kPrefix; ++i)
      made->tokens[static_cast<std::size_t>(i)] = made->request.prompt[static_cast<std::size_t>(i)] =
          TokenId(static_cast<std::int32_t>(i));
    scheduler.add(std::move(made));
  }
  ScheduledBatch step;
  scheduler.next(step);  // the first request is admitted, and all others are compared with it
  EXPECT_EQ(scheduler.num_waiting(), kWaiting - 1);
  scheduler.mark_submitted(step);
  const std::int64_t before = scheduler.prefix_waits().pages_looked_at();
  using Clock = std::chrono::steady_clock;
  Clock::duration most{};
  for (int i = 1; i < 16; ++i) {
    const Clock::time_point began = Clock::now();
    scheduler.next(step);
    most = std::max(most, Clock::now() - began);
    EXPECT_EQ(scheduler.num_running(), 1) << "the others wait for what it computes";
    scheduler.mark_submitted(step);
  }
  EXPECT_EQ(scheduler.prefix_waits().pages_looked_at(), before);
  fmt::print("a step is scheduled in at most {:.3f} ms\n", std::chrono::duration<double, std::milli>(most).count());
}

}  // namespace
}  // namespace tessera
