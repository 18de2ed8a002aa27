// A retained text is evicted later than other texts. It is marked at a few places of the cache, and the level of a
// place is the highest priority of the texts that are marked there. Catches: a place that is sorted by an old level; a
// text that loses its retention when another text is marked at one of its places; and a retention that stays when its
// text is gone. Random use is compared with a naive model of the cache.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "tessera/engine/cache/prefix_cache_test_util.h"
#include "tessera/engine/cache/retentions.h"

namespace tessera {
namespace {

constexpr std::int64_t kNaivePageSize = 2;
constexpr Retentions::Time kNaiveStart{std::chrono::seconds(1000)};

// A naive model of one full-attention group: which texts are in the cache, when each page was used last, and which part
// of each retained text is left.
struct NaivePages {
  using Text = std::vector<TokenId>;
  struct Retained {
    std::string session;
    double seconds = 0;
    std::int64_t priority = 0;
    Retentions::Time until{};
    Text left;
  };

  void use(Text text) {
    for (; !text.empty(); text.resize(text.size() - kNaivePageSize, TokenId(0))) pages[text] = ++clock;
  }
  void retain(const Text& text, const RetentionHint& hint, Retentions::Time now) {
    release(hint.session);
    if (*hint.seconds > 0)
      retained.push_back(
          {hint.session, *hint.seconds, *hint.priority,
           now + std::chrono::duration_cast<Retentions::Time::duration>(std::chrono::duration<double>(*hint.seconds)),
           text});
  }
  void release(const std::string& session) {
    if (session.empty()) return;
    std::erase_if(retained, [&](const Retained& text) { return text.session == session; });
  }
  void end(Retentions::Time now) {
    std::erase_if(retained, [&](const Retained& text) { return text.until <= now; });
  }
  std::int64_t level(const Text& page) const {
    std::int64_t most = 0;
    for (const Retained& text : retained)
      if (text.left == page) most = std::max(most, text.priority);
    return most;
  }
  bool is_leaf(const Text& page) const {
    return std::ranges::none_of(pages, [&](const auto& other) {
      return other.first.size() == page.size() + kNaivePageSize &&
             std::equal(page.begin(), page.end(), other.first.begin());
    });
  }
  void evict() {
    std::vector<std::tuple<std::int64_t, int, Text>> leaves;
    for (const auto& [page, used] : pages)
      if (is_leaf(page)) leaves.emplace_back(level(page), used, page);
    const Text page = std::get<2>(std::ranges::min(leaves));
    pages.erase(page);
    for (Retained& text : retained)
      if (text.left == page) text.left.resize(page.size() - kNaivePageSize, TokenId(0));
    std::erase_if(retained, [](const Retained& text) { return text.left.empty(); });
  }

  std::map<Text, int> pages;  // key: all tokens up to the page's end; value: its last use
  std::vector<Retained> retained;
  int clock = 0;
};

// Computes, retains, releases and evicts texts of a small alphabet, so that they share pages and often have marks at
// the same places.
TEST(RetentionsRandom, RandomUseKeepsTheOrderAndEveryPage) {
  std::vector<CachePool> pools{CachePool({.num_pages = 20})};
  PrefixCache cache(pools, kNaivePageSize);
  std::mt19937 random(5);
  const auto below = [&](int n) { return std::uniform_int_distribution<int>(0, n - 1)(random); };
  NaivePages naive;
  Retentions::Time now = kNaiveStart;
  for (int i = 0; i < 20'000; ++i) {
    std::vector<TokenId> text;
    for (int page = 1 + below(5); page > 0; --page) text.insert(text.end(), 2, TokenId(below(2)));
    now += std::chrono::milliseconds(below(500));
    RetentionHint hint;
    switch (below(5)) {
      case 0:
        cache.end_retentions(now);
        naive.end(now);
        break;
      case 1: {
        const std::string session = std::to_string(below(8));
        cache.release_session(session);
        naive.release(session);
        break;
      }
      case 2: break;
      default:
        hint = {
            .session = below(3) == 0 ? "" : std::to_string(below(8)), .seconds = below(20), .priority = 1 + below(3)};
    }
    while (pools[0].num_free() < std::ssize(text) / kNaivePageSize - cache.count_known(text)) {
      ASSERT_EQ(cache.evict(0, 1), 1);
      naive.evict();
    }
    test::compute_sequence(cache, pools, text, kNaivePageSize);
    if (hint.any()) {
      PrefixCache::Path path = cache.find(text);
      cache.retain(hint, path, path.size(), now);
      cache.release(path);
    }
    naive.use(text);
    if (hint.any()) naive.retain(text, hint, now);
    for (std::int64_t wanted = std::min<std::int64_t>(below(3), cache.num_nodes()); wanted > 0; --wanted) {
      ASSERT_EQ(cache.evict(0, 1), 1);
      naive.evict();
    }
    ASSERT_EQ(cache.num_nodes(), std::ssize(naive.pages));
    ASSERT_EQ(cache.num_evictable(0), cache.num_nodes());
    ASSERT_EQ(pools[0].num_free(), 19 - cache.num_nodes());
    ASSERT_EQ(cache.retention_stats().texts, std::ssize(naive.retained)) << i;
    for (const auto& [page, used] : naive.pages)
      ASSERT_EQ(cache.count_known(page), std::ssize(page) / kNaivePageSize) << i << ": another page was evicted";
  }
  cache.end_retentions(now + std::chrono::seconds(100));
  EXPECT_FALSE(cache.retains());
  cache.flush();
  EXPECT_EQ(cache.num_nodes(), 0);
}

}  // namespace
}  // namespace tessera
