// Tests the index inputs of a vision tower, which say where the patches of packed images lie. Catches: attention
// windows that are cut or ordered wrongly; patches of a second image or frame whose ranges begin where the ranges of
// the first one begin; a token order that leaves tokens in the order of the tower instead of the image; and
// interpolation weights of learned positions that do not sum to 1.
#include "tessera/runner/vision/patch_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

using ::testing::ElementsAre;
using Kind = VisionConfig::Kind;

// Windows of 2 × 2 merge units.
const VisionConfig kWindows{.kind = Kind::kQwen25, .patch_size = 14, .merge_size = 2, .window_size = 56};
const VisionConfig kPlain{.kind = Kind::kQwen2, .patch_size = 14, .merge_size = 2};
const VisionConfig kLearned{.kind = Kind::kQwen3, .patch_size = 16, .merge_size = 2, .position_side = 5};

std::vector<std::int32_t> every(const std::vector<std::int32_t>& list, std::size_t step, std::size_t first = 0) {
  std::vector<std::int32_t> taken;
  for (std::size_t i = first; i < list.size(); i += step) taken.push_back(list[i]);
  return taken;
}

TEST(PatchLayout, OrdersWindowsByRowsWithSmallEdges) {
  PatchLayout layout;
  append_image({.t = 1, .h = 6, .w = 6}, kWindows, layout);  // 3 × 3 units
  EXPECT_THAT(layout.units, ElementsAre(0, 1, 3, 4, 2, 5, 6, 7, 8));
  EXPECT_THAT(layout.token_order, ElementsAre(0, 1, 4, 2, 3, 5, 6, 7, 8));
  // A merge unit has four patches, and each patch has two entries. every(…, 8) takes the first entry of each unit's
  // first patch.
  EXPECT_THAT(every(layout.window_ranges, 8), ElementsAre(0, 0, 0, 0, 16, 16, 24, 24, 32));
  EXPECT_THAT(every(layout.window_ranges, 8, 1), ElementsAre(16, 16, 16, 16, 24, 24, 32, 32, 36));
  EXPECT_THAT(every(layout.image_ranges, 2), ::testing::Each(0));
  EXPECT_THAT(every(layout.image_ranges, 2, 1), ::testing::Each(36));
  // The last window is the unit at the lower right, which has the image's last patches.
  EXPECT_THAT((std::vector<std::int32_t>(layout.positions.end() - 8, layout.positions.end())),
              ElementsAre(4, 4, 4, 5, 5, 4, 5, 5));
  EXPECT_THAT(layout.position_rows, ElementsAre());
}

TEST(PatchLayout, WithoutWindowsTheOrderIsTheImages) {
  PatchLayout layout;
  append_image({.t = 1, .h = 4, .w = 6}, kPlain, layout);
  append_image({.t = 1, .h = 2, .w = 2}, kPlain, layout);
  pad_layout(32, kPlain, layout);
  EXPECT_THAT(layout.units, ElementsAre(0, 1, 2, 3, 4, 5, 0, 0));
  EXPECT_THAT(every(layout.image_ranges, 8), ElementsAre(0, 0, 0, 0, 0, 0, 24, 0));
  EXPECT_THAT(every(layout.image_ranges, 8, 1), ElementsAre(24, 24, 24, 24, 24, 24, 28, 0));
  EXPECT_TRUE(layout.window_ranges.empty() && layout.token_order.empty() && layout.position_rows.empty());
}

TEST(PatchLayout, ImagesAndFramesKeepToThemselves) {
  PatchLayout layout;
  append_image({.t = 1, .h = 2, .w = 4}, kWindows, layout);
  append_image({.t = 2, .h = 2, .w = 2}, kWindows, layout);
  EXPECT_EQ(layout.patches(), 16);
  EXPECT_THAT(layout.units, ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(layout.token_order, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(every(layout.image_ranges, 8), ElementsAre(0, 0, 8, 12));
  EXPECT_THAT(every(layout.image_ranges, 8, 1), ElementsAre(8, 8, 12, 16));
  EXPECT_THAT(every(layout.window_ranges, 8), ElementsAre(0, 0, 8, 12));
  pad_layout(24, kWindows, layout);
  EXPECT_EQ(layout.patches(), 24);
  EXPECT_THAT(layout.token_order, ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(every(layout.image_ranges, 8, 1), ElementsAre(8, 8, 12, 16, 0, 0));
  EXPECT_EQ(layout.window_ranges.size(), 48U);
  layout.clear();
  EXPECT_EQ(layout.patches(), 0);
  EXPECT_TRUE(layout.units.empty() && layout.token_order.empty() && layout.positions.empty());
}

// The patches in an image's corners get exactly the corner positions of the learned table. A patch between them gets a
// bilinear sample of the table.
TEST(PatchLayout, LearnedPositionsAreInterpolated) {
  PatchLayout layout;
  append_image({.t = 1, .h = 4, .w = 2}, kLearned, layout);
  ASSERT_EQ(layout.position_rows.size(), 32U);
  const auto sample = [&](std::size_t patch) {
    std::vector<std::pair<std::int32_t, float>> terms;
    for (std::size_t k = 0; k < 4; ++k)
      if (const float weight = layout.position_weights[patch * 4 + k]; weight != 0)
        terms.emplace_back(layout.position_rows[patch * 4 + k], weight);
    return terms;
  };
  EXPECT_THAT(sample(0), ElementsAre(std::pair(0, 1.0F)));
  EXPECT_THAT(sample(1), ElementsAre(std::pair(4, 1.0F)));
  EXPECT_THAT(sample(7), ElementsAre(std::pair(24, 1.0F)));
  // Four rows cover positions 0 to 4. The second row lies at 4/3, a third of the way from position 1 to position 2.
  const auto second = sample(2);
  ASSERT_EQ(second.size(), 2U);
  EXPECT_EQ(second[0].first, 5);
  EXPECT_NEAR(second[0].second, 2.0 / 3, 1e-6);
  EXPECT_EQ(second[1].first, 10);
  EXPECT_NEAR(second[1].second, 1.0 / 3, 1e-6);
  EXPECT_TRUE(layout.window_ranges.empty() && layout.token_order.empty());
  pad_layout(12, kLearned, layout);
  EXPECT_EQ(layout.position_weights.size(), 48U);
}

TEST(PatchLayout, ARowOfPatchesTakesTheFirstLearnedRow) {
  const VisionConfig config{.kind = Kind::kQwen3, .merge_size = 1, .position_side = 3};
  PatchLayout layout;
  append_image({.t = 1, .h = 1, .w = 3}, config, layout);
  EXPECT_THAT(every(layout.position_rows, 4), ElementsAre(0, 1, 2));
}

}  // namespace
}  // namespace tessera
