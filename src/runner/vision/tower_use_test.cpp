// Catches: forwards of a vision tower that are not counted; forwards that are counted under another reason or another
// budget (the number of patches of a captured graph); and counts that leave out padding patches.
#include "tessera/runner/vision/tower_use.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TowerForward replayed(std::size_t images, std::int64_t patches, std::int64_t size) {
  return {
      .images = images, .patches = patches, .how = {.size = size, .graph = true, .reason = VisionReason::kReplayed}};
}
TowerForward eager(std::int64_t patches, std::int64_t size, VisionReason reason) {
  return {.images = 1, .patches = patches, .how = {.size = size, .reason = reason}};
}

TEST(TowerCounts, ForwardsThatRanAlikeShareAnEntry) {
  TowerCounts counts;
  counts.add(replayed(2, 100, 128));
  counts.add(replayed(1, 128, 128));
  counts.add(replayed(1, 60, 64));
  counts.add(eager(4200, 4224, VisionReason::kTooLarge));
  counts.add(eager(5000, 5056, VisionReason::kTooLarge));
  ASSERT_EQ(counts.by_key().size(), 3U) << "eager sizes are counted together";
  const TowerCount of_budget = counts.of_size(128);
  EXPECT_EQ(of_budget.forwards, 2);
  EXPECT_EQ(of_budget.images, 3);
  EXPECT_EQ(of_budget.patches, 228);
  EXPECT_EQ(of_budget.padding, 28);
  EXPECT_EQ(counts.of(VisionReason::kReplayed).forwards, 3);
  EXPECT_EQ(counts.of(VisionReason::kTooLarge).patches, 9200);
  EXPECT_EQ(counts.of(VisionReason::kTooLarge).padding, 80);
  EXPECT_EQ(counts.of(VisionReason::kDropped).forwards, 0);

  TowerCounts sum = counts;
  sum.add(counts);
  EXPECT_EQ(sum.of_size(128).padding, 56);
  EXPECT_EQ(sum.by_key().size(), 3U);
}

TEST(TowerCounts, ARequestCountsItsOwnImages) {
  TowerCounts own;
  own.add_of(replayed(3, 120, 128), 1, 40);
  EXPECT_EQ(own.of_size(128).images, 1);
  EXPECT_EQ(own.of_size(128).patches, 40);
  EXPECT_EQ(own.of_size(128).padding, 8) << "the forward's";
}

}  // namespace
}  // namespace tessera
