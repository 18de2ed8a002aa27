// Ranges of neighbouring rows are allocated from a pool. Catches: a row that belongs to two ranges; free rows that are
// not found; rows that are handed out although they are not free; and lost rows.
#include "tessera/engine/images/row_ranges.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>

namespace tessera {
namespace {

TEST(RowRanges, TakesTheLowestRangeThatFits) {
  RowRanges rows;
  EXPECT_FALSE(rows.has_room(1)) << "none before it grows";
  rows.grow(10);
  EXPECT_EQ(rows.take(4), 0);
  EXPECT_EQ(rows.take(2), 4);
  EXPECT_EQ(rows.take(4), 6);
  EXPECT_FALSE(rows.has_room(1));
  rows.give_back(0);
  EXPECT_FALSE(rows.has_room(5)) << "four neighbours are free";
  EXPECT_EQ(rows.take(3), 0);
  EXPECT_EQ(rows.take(1), 3);
  rows.grow(12);
  rows.grow(5);
  EXPECT_EQ(rows.size(), 12);
  EXPECT_EQ(rows.take(2), 10);
}

TEST(RowRanges, AgreeWithCountedRows) {
  constexpr std::int64_t kRows = 40;
  std::mt19937 random(1);
  RowRanges rows;
  rows.grow(kRows);
  std::vector<std::pair<std::int64_t, std::int64_t>> taken;  // pairs of a range's first row and its number of rows
  std::vector<bool> used(kRows, false);
  for (int i = 0; i < 20000; ++i) {
    if (random() % 2 == 0 && !taken.empty()) {
      const auto at = taken.begin() + static_cast<std::ptrdiff_t>(random() % taken.size());
      rows.give_back(at->first);
      std::fill_n(used.begin() + at->first, at->second, false);
      taken.erase(at);
      continue;
    }
    const auto count = static_cast<std::int64_t>(1 + random() % 12);
    const auto free = std::search_n(used.begin(), used.end(), count, false);
    ASSERT_EQ(rows.has_room(count), free != used.end());
    if (free == used.end()) continue;
    const std::int64_t first = rows.take(count);
    ASSERT_EQ(first, free - used.begin());
    std::fill_n(free, count, true);
    taken.emplace_back(first, count);
  }
}

}  // namespace
}  // namespace tessera
