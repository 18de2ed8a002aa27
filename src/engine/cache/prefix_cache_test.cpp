// Catches: a prefix that is found although it is not cached, or missed although it is cached; a page that is evicted
// while in use or before the pages after it; wrong page counts; and two pages for the same tokens.
#include "tessera/engine/cache/prefix_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/engine/cache/prefix_cache_test_util.h"

namespace tessera {
namespace {

using test::pages_of;
using test::token_ids;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::int64_t kPageSize = 2;

class PrefixCacheTest : public ::testing::Test {
 protected:
  std::vector<PageId> compute(const PrefixTokens& tokens) {
    return test::compute_sequence(cache_, pools_, tokens, kPageSize);
  }

  std::vector<CachePool> pools_{CachePool({.num_pages = 20})};
  PrefixCache cache_{pools_, kPageSize};
};

TEST_F(PrefixCacheTest, FindsTheLongestPrefixInFullPages) {
  EXPECT_THAT(cache_.find(token_ids({1, 2, 3, 4})), IsEmpty());
  const std::vector<PageId> pages = compute(token_ids({1, 2, 3, 4, 5}));
  EXPECT_THAT(pages, SizeIs(2)) << "the last token fills no page";
  EXPECT_EQ(cache_.count_known(token_ids({1, 2, 3, 4, 5, 6})), 2);
  EXPECT_EQ(cache_.count_known(token_ids({1, 2, 3})), 1);
  EXPECT_EQ(cache_.count_known(token_ids({1, 2, 3, 9})), 1);
  EXPECT_EQ(cache_.count_known(token_ids({2, 1, 3, 4})), 0) << "the order counts";
  EXPECT_EQ(cache_.count_known(token_ids({3, 4})), 0) << "and so does what comes before";
  EXPECT_EQ(cache_.count_known({}), 0);
  EXPECT_EQ(pages_of(cache_.find(token_ids({1, 2, 3, 4}))), pages);
}

// Pages have 2 tokens. An image of 5 tokens, all with the id 9, begins at token 1.
TEST_F(PrefixCacheTest, AnImageIsKnownByItsContent) {
  const std::vector<TokenId> tokens = token_ids({1, 9, 9, 9, 9, 9, 2, 3});
  const auto with = [&](std::uint64_t content, std::int64_t first, std::int64_t count) {
    return std::vector{ImageSpan{.first_token = first, .count = count, .content = {.high = 0, .low = content}}};
  };
  const std::vector<ImageSpan> image = with(7, 1, 5);
  compute({tokens, image});
  EXPECT_EQ(cache_.count_known({tokens, image}), 4);
  EXPECT_EQ(cache_.count_known({std::span(tokens).first(5), image}), 2) << "a part of it";
  EXPECT_EQ(cache_.count_known({tokens, with(8, 1, 5)}), 0) << "another image";
  EXPECT_EQ(cache_.count_known(tokens), 0) << "no image";
  EXPECT_EQ(cache_.count_known({tokens, with(7, 1, 4)}), 2) << "a shorter one";
  EXPECT_EQ(cache_.count_known({tokens, with(7, 2, 4)}), 0) << "at another place";
  compute(tokens);
  EXPECT_EQ(cache_.count_known({tokens, image}), 4);
  EXPECT_EQ(cache_.num_nodes(), 8) << "no page is shared, not even the last one of text";
  EXPECT_EQ(cache_.evict(0, 20), 8);
  EXPECT_EQ(cache_.num_nodes(), 0);
}

TEST(PrefixTokensTest, CommonPrefixEndsAtTheFirstDifferentImage) {
  const std::vector<TokenId> tokens = token_ids({1, 9, 9, 2, 9, 9, 3});
  const ImageSpan a{.first_token = 1, .count = 2, .content = {.high = 1, .low = 0}};
  const ImageSpan b{.first_token = 4, .count = 2, .content = {.high = 2, .low = 0}};
  const ImageSpan other{.first_token = 4, .count = 2, .content = {.high = 3, .low = 0}};
  const std::vector<ImageSpan> both{a, b};
  EXPECT_EQ(common_prefix({tokens, both}, {tokens, both}), 7);
  EXPECT_EQ(common_prefix({tokens, both}, {tokens, std::vector{a, other}}), 4);
  EXPECT_EQ(common_prefix({tokens, both}, {tokens, std::vector{a}}), 4);
  EXPECT_EQ(common_prefix({tokens, both}, tokens), 1);
  EXPECT_EQ(common_prefix({std::span(tokens).first(3), both}, {tokens, std::vector{a}}), 3);
}

TEST_F(PrefixCacheTest, BranchesShareTheirCommonPages) {
  const std::vector<PageId> left = compute(token_ids({1, 2, 3, 4}));
  const std::vector<PageId> right = compute(token_ids({1, 2, 5, 6}));
  EXPECT_EQ(left[0], right[0]);
  EXPECT_NE(left[1], right[1]);
  EXPECT_EQ(cache_.num_nodes(), 3);
  EXPECT_EQ(cache_.num_evictable(0), 3);
}

TEST_F(PrefixCacheTest, TheFirstOfTwoEqualPagesIsKept) {
  PrefixCache::Path first;
  PrefixCache::Path second;
  std::vector<GroupPages> first_held{{.pages = {pools_[0].take()}}};
  std::vector<GroupPages> second_held{{.pages = {pools_[0].take(), pools_[0].take()}}};
  const std::int64_t free = pools_[0].num_free();
  cache_.extend(first, token_ids({1, 2}), first_held);
  cache_.extend(second, token_ids({1, 2, 3, 4}), second_held);
  EXPECT_EQ(second_held[0].pages[0], first_held[0].pages[0]);
  EXPECT_EQ(pools_[0].num_free(), free + 1) << "the other one is free again";
  EXPECT_EQ(cache_.num_nodes(), 2);
  cache_.release(first);
  EXPECT_EQ(cache_.num_evictable(0), 0) << "the second still uses both";
  cache_.release(second);
  EXPECT_EQ(cache_.num_evictable(0), 2);
}

TEST_F(PrefixCacheTest, EvictsTheLongestUnusedLeavesFirst) {
  compute(token_ids({1, 2, 3, 4}));
  compute(token_ids({5, 6}));
  compute(token_ids({1, 2, 7, 8}));
  PrefixCache::Path used = cache_.find(token_ids({1, 2, 3, 4}));
  cache_.release(used);  // these nodes are now the most recently used ones
  EXPECT_EQ(cache_.evict(0, 1), 1);
  EXPECT_EQ(cache_.count_known(token_ids({5, 6})), 0);
  EXPECT_EQ(cache_.evict(0, 1), 1);
  EXPECT_EQ(cache_.count_known(token_ids({1, 2, 7, 8})), 1) << "what leads to 3, 4 stays";
  EXPECT_EQ(cache_.evict(0, 5), 2);
  EXPECT_EQ(cache_.num_nodes(), 0);
  EXPECT_EQ(pools_[0].num_free(), 19);
}

TEST_F(PrefixCacheTest, PagesInUseAreNotEvicted) {
  compute(token_ids({1, 2, 3, 4, 5, 6}));
  PrefixCache::Path used = cache_.find(token_ids({1, 2, 3, 4}));
  EXPECT_EQ(cache_.num_evictable(0), 1);
  EXPECT_EQ(cache_.evict(0, 3), 1);
  EXPECT_EQ(cache_.count_known(token_ids({1, 2, 3, 4})), 2);
  PrefixCache::Path again = cache_.find(token_ids({1, 2}));
  cache_.release(used);
  EXPECT_EQ(cache_.num_evictable(0), 1) << "the first page is used twice";
  cache_.release(again);
  EXPECT_EQ(cache_.evict(0, 3), 2);
  EXPECT_EQ(pools_[0].num_free(), 19);
}

}  // namespace
}  // namespace tessera
