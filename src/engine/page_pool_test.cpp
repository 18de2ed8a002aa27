// Catches: a page handed out twice or lost on its way back, and the reserved page handed out.
#include "tessera/engine/page_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

namespace tessera {
namespace {

TEST(PagePool, HandsOutEveryPageButTheReservedOne) {
  PagePool pool(5, 16);
  EXPECT_EQ(pool.num_usable(), 4);
  EXPECT_EQ(pool.num_free(), 4);
  for (const int page : {1, 2, 3, 4}) EXPECT_EQ(pool.take(), PageId(page));
  EXPECT_EQ(pool.num_free(), 0);
}

TEST(PagePool, CountsPagesRoundedUp) {
  const PagePool pool(5, 16);
  const std::pair<std::int64_t, std::int64_t> cases[] = {{0, 0}, {1, 1}, {16, 1}, {17, 2}, {32, 2}, {33, 3}};
  for (const auto& [tokens, pages] : cases) EXPECT_EQ(pool.pages_for(tokens), pages) << tokens;
}

TEST(PagePool, WithoutUsablePagesNothingIsFree) {
  for (const std::int64_t pages : {0, 1}) {
    const PagePool pool(pages, 16);
    EXPECT_EQ(pool.num_usable(), 0);
    EXPECT_EQ(pool.num_free(), 0);
  }
}

TEST(PagePool, NoPageHasTwoOwnersOnRandomUse) {
  std::mt19937 random(1);
  PagePool pool(60, 16);
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
