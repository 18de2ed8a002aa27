// Tests the table that tells kernels which adapter each row has. A slot holds one adapter's matrices, and a chunk is a
// list of rows for one thread block. Catches: a row with an adapter that is in no chunk or in two; a chunk whose rows
// have different slots; more chunks than the maximum for which kernels are launched; padding rows with an adapter.
#include "tessera/ops/adapters/adapter_rows.h"

#include <gmock/gmock.h>

#include <vector>

namespace tessera {
namespace {

using ::testing::ElementsAre;

std::vector<std::int32_t> table_of(std::span<const std::int32_t> slots, std::size_t padded) {
  std::vector<std::int32_t> table(static_cast<std::size_t>(kAdapterRowLists) * padded, 77);
  write_adapter_rows(slots, padded, reinterpret_cast<std::byte*>(table.data()));
  return table;
}

TEST(AdapterRows, PutRowsOfOneSlotTogether) {
  const std::vector<std::int32_t> slots{2, -1, 0, 2, 0};
  const std::vector<std::int32_t> table = table_of(slots, 6);
  const auto list = [&](std::size_t i) { return std::vector(table.begin() + 6 * i, table.begin() + 6 * (i + 1)); };
  EXPECT_THAT(list(0), ElementsAre(2, -1, 0, 2, 0, -1));
  EXPECT_THAT(std::vector(table.begin() + 6, table.begin() + 10), ElementsAre(2, 4, 0, 3));
  EXPECT_THAT(list(2), ElementsAre(0, 2, -1, -1, -1, -1));
  EXPECT_THAT(std::vector(table.begin() + 18, table.begin() + 20), ElementsAre(0, 2));
  EXPECT_THAT(list(4), ElementsAre(2, 2, 0, 0, 0, 0));
}

TEST(AdapterRows, ChunksHoldEachRowWithAnAdapterOnce) {
  for (const std::size_t rows : std::initializer_list<std::size_t>{1, 8, 9, 100, 1024, 1025, 5000})
    for (const std::int32_t num_slots : {1, 3, 64}) {
      std::vector<std::int32_t> slots;
      for (std::size_t i = 0; i < rows; ++i)
        slots.push_back(static_cast<std::int32_t>(i * 7919 % static_cast<std::size_t>(num_slots + 1)) - 1);
      const std::size_t padded = rows + rows / 3;
      const std::vector<std::int32_t> table = table_of(slots, padded);
      const AdapterRows lists = AdapterRows::of(table.data(), static_cast<std::int64_t>(padded));
      std::vector<int> seen(padded, 0);
      std::int64_t chunks = 0;
      for (; chunks < static_cast<std::int64_t>(padded) && lists.chunk_slots[chunks] >= 0; ++chunks) {
        EXPECT_GE(lists.chunk_sizes[chunks], 1);
        EXPECT_LE(lists.chunk_sizes[chunks], adapter_chunk_rows(static_cast<std::int64_t>(padded)));
        for (std::int32_t i = 0; i < lists.chunk_sizes[chunks]; ++i) {
          const std::int32_t row = lists.order[lists.chunk_begins[chunks] + i];
          EXPECT_EQ(lists.slots[row], lists.chunk_slots[chunks]);
          ++seen[static_cast<std::size_t>(row)];
        }
      }
      EXPECT_LE(chunks, max_adapter_chunks(static_cast<std::int64_t>(padded), num_slots)) << rows << " rows";
      for (std::size_t row = 0; row < padded; ++row)
        EXPECT_EQ(seen[row], row < rows && slots[row] >= 0 ? 1 : 0) << "row " << row << " of " << rows;
    }
}

TEST(AdapterRows, NoRowsMakeAnEmptyTable) {
  EXPECT_TRUE(table_of({}, 0).empty());
  EXPECT_EQ(max_adapter_chunks(0, 8), 0);
  EXPECT_EQ(table_of({}, 2)[0], -1);
}

}  // namespace
}  // namespace tessera
