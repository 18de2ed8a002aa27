// Catches: misaligned columns (text with multi-byte characters, right-aligned numbers), and numbers that are shortened
// or grouped wrongly.
#include "tessera/cli/table.h"

#include <gtest/gtest.h>

namespace tessera::cli {
namespace {

TEST(Table, ColumnsLineUp) {
  Table table({"name", ">count"});
  table.add({"a…b", "7"});
  table.add({"longer", "1,234"});
  EXPECT_EQ(table.text(),
            "  name    count\n"
            "  ------  -----\n"
            "  a…b         7\n"
            "  longer  1,234\n");
}

TEST(Table, NumbersAreShortenedAndGrouped) {
  EXPECT_EQ(count_text(0), "0");
  EXPECT_EQ(count_text(999), "999");
  EXPECT_EQ(count_text(1000), "1,000");
  EXPECT_EQ(count_text(-1234567), "-1,234,567");
  EXPECT_EQ(number_text(0.1234), "0.123");
  EXPECT_EQ(number_text(1.234), "1.23");
  EXPECT_EQ(number_text(12.34), "12.3");
  EXPECT_EQ(number_text(1234.4), "1,234");
  EXPECT_EQ(bytes_text(512), "512 B");
  EXPECT_EQ(bytes_text(1536), "1.5 KiB");
  EXPECT_EQ(plural(1, "piece"), "1 piece");
  EXPECT_EQ(plural(1000, "piece"), "1,000 pieces");
}

TEST(Table, LongSizeListsAreShortened) {
  EXPECT_EQ(sizes_text({}), "none");
  EXPECT_EQ(sizes_text({4, 8}), "4, 8");
  EXPECT_EQ(sizes_text({1, 2, 4, 8, 12, 16, 24}), "1, 2, 4 … 24 (7 sizes)");
}

}  // namespace
}  // namespace tessera::cli
