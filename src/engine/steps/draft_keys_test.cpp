// Draft keys are the keys and values of the layer or model that makes drafts. Catches: a slot of the KV cache that
// counts as having draft keys although another token was written to it without draft keys; and a position without draft
// keys that is overlooked.
#include "tessera/engine/steps/draft_keys.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

class DraftKeysOfOneSequence : public ::testing::Test {
 protected:
  DraftKeysOfOneSequence() : cache(paged_cache(/*num_pages=*/8, /*page_size=*/4)), keys(cache) {
    cache.admit(sequence.cache, 10, 10);
    batch.groups.resize(1);
    for (std::int64_t position = 0; position < 10; ++position) {
      const PageId page = sequence.cache.groups[0].pages[static_cast<std::size_t>(position / 4)];
      batch.groups[0].slots.emplace_back(page.value() * 4 + static_cast<std::int32_t>(position % 4));
    }
  }
  CacheManager cache;
  DraftKeys keys;
  Sequence sequence;
  ForwardBatch batch;
};

TEST_F(DraftKeysOfOneSequence, FirstMissingPositionIsFound) {
  EXPECT_EQ(keys.first_missing(sequence, 0, 10), 0);
  keys.set(batch, 0, 6, true);
  keys.set(batch, 7, 3, true);
  EXPECT_EQ(keys.first_missing(sequence, 0, 10), 6);
  EXPECT_EQ(keys.first_missing(sequence, 0, 5), 5);
  EXPECT_EQ(keys.first_missing(sequence, 7, 10), 10);
  EXPECT_EQ(keys.count_missing(sequence, 10), 1);
  EXPECT_EQ(keys.count_missing(sequence, 6), 0);
}

TEST_F(DraftKeysOfOneSequence, WrittenSlotsLoseTheirKeys) {
  keys.set(batch, 0, 10, true);
  keys.set(batch, 4, 2, false);
  EXPECT_EQ(keys.first_missing(sequence, 0, 10), 4);
  EXPECT_EQ(keys.count_missing(sequence, 10), 2);
}

}  // namespace
}  // namespace tessera
