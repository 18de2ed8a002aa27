// Catches: dummy batches whose rows a router treats as padding, so that measured costs leave out the experts; and dummy
// batches that write to a request's slot.
#include "tessera/runner/dummy_batch.h"

#include <gtest/gtest.h>

#include <set>

namespace tessera {
namespace {

const std::vector<ir::CacheGroup> kGroups = {{.name = "state", .kind = ir::CacheGroup::Kind::kState}, {.name = "full"}};

RunnerOptions options(std::int64_t page_size) {
  RunnerOptions made;
  made.page_size = page_size;
  made.context_length = 64;
  made.max_requests = 100;
  return made;
}

TEST(DummyBatch, RowsAreNoPaddingAndDiffer) {
  for (const bool decode : {false, true}) {
    const ForwardBatch batch = dummy_batch(100, decode, options(16), kGroups, 30);
    ASSERT_EQ(batch.num_tokens(), 100);
    std::set<TokenId> ids;
    for (std::size_t row = 0; row < 100; ++row) {
      ids.insert(batch.input_ids[row]);
      EXPECT_EQ(batch.groups[0].slots[row], SlotId(0)) << "slot 1 is the state of a request";
      EXPECT_GT(batch.groups[1].slots[row], SlotId(0));
      EXPECT_LT(batch.groups[1].slots[row], SlotId(16)) << "on the reserved page";
    }
    EXPECT_EQ(ids.size(), 30U);
    for (const CacheGroupBatch& group : batch.groups)
      for (const PageTable& table : group.page_tables)
        for (const PageId page : table.pages) EXPECT_EQ(page, PageId(0));
  }
}

// A dummy batch wants only the logits of each request's last row, like the last chunk of a prompt.
TEST(DummyBatch, WantsTheLastRowOfEachRequest) {
  EXPECT_EQ(dummy_batch(100, /*decode=*/false, options(16), kGroups, 30).wanted_rows,
            (std::vector<std::int32_t>{63, 99}));
  EXPECT_EQ(dummy_batch(3, /*decode=*/true, options(16), kGroups, 30).wanted_rows,
            (std::vector<std::int32_t>{0, 1, 2}));
}

TEST(DummyBatch, PagesOfOneTokenHaveNoOtherSlot) {
  const ForwardBatch batch = dummy_batch(5, /*decode=*/false, options(1), kGroups, 30);
  EXPECT_EQ(batch.groups[1].slots, std::vector<SlotId>(5, SlotId(0)));
}

}  // namespace
}  // namespace tessera
