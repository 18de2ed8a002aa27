// Catches: a page handed out twice, lost on its way back, or taken though too few are free; and the reserved page.
#include "tessera/engine/page_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(PagePool, HandsOutEveryPageButTheReservedOne) {
  PagePool pool(5, 16);
  EXPECT_EQ(pool.num_usable(), 4);
  EXPECT_EQ(pool.num_free(), 4);
  EXPECT_THAT(*pool.take(4), ElementsAre(PageId(1), PageId(2), PageId(3), PageId(4)));
  EXPECT_EQ(pool.num_free(), 0);
}

TEST(PagePool, TakesNoneWhereTooFewAreFree) {
  PagePool pool(5, 16);
  std::vector<PageId> pages = *pool.take(3);
  const Result<std::vector<PageId>> more = pool.take(2);
  EXPECT_EQ(more.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(more.status().message(), HasSubstr("2 pages of the KV cache are wanted, 1 of 4 are free"));
  EXPECT_EQ(pool.num_free(), 1);
  EXPECT_EQ(pool.take(1)->size(), 1u);
  pool.give_back(pages);
  EXPECT_THAT(pages, IsEmpty());
  EXPECT_EQ(pool.num_free(), 3);
}

TEST(PagePool, CountsPagesRoundedUp) {
  const PagePool pool(5, 16);
  const std::pair<std::int64_t, std::int64_t> cases[] = {{0, 0}, {1, 1}, {16, 1}, {17, 2}, {32, 2}, {33, 3}};
  for (const auto& [tokens, pages] : cases) EXPECT_EQ(pool.pages_for(tokens), pages) << tokens;
}

TEST(PagePool, WithoutUsablePagesNothingCanBeTaken) {
  for (const std::int64_t pages : {0, 1}) {
    PagePool pool(pages, 16);
    EXPECT_EQ(pool.num_usable(), 0);
    EXPECT_TRUE(pool.take(0).ok());
    EXPECT_FALSE(pool.take(1).ok());
  }
}

TEST(PagePool, NoPageHasTwoOwnersOnRandomUse) {
  std::mt19937 random(1);
  PagePool pool(60, 16);
  std::vector<std::vector<PageId>> owners(8);
  for (int i = 0; i < 20000; ++i) {
    std::vector<PageId>& owner = owners[random() % owners.size()];
    if (owner.empty()) {
      Result<std::vector<PageId>> taken = pool.take(1 + random() % 20);
      if (taken.ok()) owner = *std::move(taken);
    } else {
      pool.give_back(owner);
    }
    std::set<PageId> held;
    std::size_t count = 0;
    for (const std::vector<PageId>& pages : owners) {
      held.insert(pages.begin(), pages.end());
      count += pages.size();
    }
    ASSERT_EQ(held.size(), count) << "a page has two owners";
    ASSERT_EQ(held.count(PageId(0)), 0u);
    ASSERT_TRUE(held.empty() || held.rbegin()->value() < 60);
    ASSERT_EQ(pool.num_free() + static_cast<std::int64_t>(count), 59);
  }
}

}  // namespace
}  // namespace tessera
