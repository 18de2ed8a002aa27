// Catches: a page that is handed out twice; a page that is lost when it is given back; and a pool that hands out the
// reserved page.
#include "tessera/engine/cache/cache_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace tessera {
namespace {

TEST(CachePool, HandsOutEveryPageButTheReservedOne) {
  CachePool pool({.num_pages = 5});
  EXPECT_EQ(pool.num_usable(), 4);
  EXPECT_EQ(pool.num_free(), 4);
  for (const int page : {1, 2, 3, 4}) EXPECT_EQ(pool.take(), PageId(page));
  EXPECT_EQ(pool.num_free(), 0);
}

TEST(CachePool, AWindowTakesItsPagesAndOneMore) {
  for (const std::int64_t page_size : {1, 3, 16}) {
    for (std::int64_t window = 1; window < 50; ++window) {
      std::int64_t most = 0;
      for (std::int64_t first = 0; first < page_size; ++first)
        most = std::max(most, (first + window - 1) / page_size + 1);
      EXPECT_EQ(window_pages(window, page_size), most) << window << " tokens in pages of " << page_size;
    }
  }
}

TEST(CachePool, WithoutUsablePagesNothingIsFree) {
  for (const std::int64_t pages : {0, 1}) {
    const CachePool pool({.num_pages = pages});
    EXPECT_EQ(pool.num_usable(), 0);
    EXPECT_EQ(pool.num_free(), 0);
  }
}

TEST(CachePool, NoPageHasTwoOwnersOnRandomUse) {
  std::mt19937 random(1);
  CachePool pool({.num_pages = 60});
  std::set<PageId> held;
  for (int i = 0; i < 20000; ++i) {
    if (pool.num_free() > 0 && random() % 2 == 0) {
      const PageId page = pool.take();
      ASSERT_TRUE(page.value() >= 1 && page.value() < 60);
      ASSERT_TRUE(held.insert(page).second) << "a page has two owners";
    } else if (!held.empty()) {
      pool.give_back(*held.begin());
      held.erase(held.begin());
    }
    ASSERT_EQ(pool.num_free() + static_cast<std::int64_t>(held.size()), 59);
  }
}

}  // namespace
}  // namespace tessera
