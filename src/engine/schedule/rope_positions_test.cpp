// Catches: positions of an image's tokens, or of the tokens after it, that differ from Hugging Face's or depend on how
// the prompt is split into prefill chunks.
#include "tessera/engine/schedule/rope_positions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

using ::testing::ElementsAre;
using Axes = std::array<std::vector<std::int32_t>, 3>;

TEST(RopePositions, CountUpTogetherInText) {
  Axes axes;
  RopePositions({}).append(5, 3, axes);
  for (const std::vector<std::int32_t>& axis : axes) EXPECT_THAT(axis, ElementsAre(5, 6, 7));
}

// Two tokens of text, an image of 2 rows and 3 columns, one token of text, and directly after it an image of 3 rows and
// 1 column.
TEST(RopePositions, TextContinuesBehindAnImagesGreatestPosition) {
  const TokenGrid images[] = {{.first_token = 2, .rows = 2, .columns = 3}, {.first_token = 9, .rows = 3, .columns = 1}};
  const RopePositions positions(images);
  Axes axes;
  positions.append(0, 14, axes);
  EXPECT_THAT(axes[0], ElementsAre(0, 1, 2, 2, 2, 2, 2, 2, 5, 6, 6, 6, 9, 10));
  EXPECT_THAT(axes[1], ElementsAre(0, 1, 2, 2, 2, 3, 3, 3, 5, 6, 7, 8, 9, 10));
  EXPECT_THAT(axes[2], ElementsAre(0, 1, 2, 3, 4, 2, 3, 4, 5, 6, 6, 6, 9, 10));
  for (std::int64_t chunk = 1; chunk < 14; ++chunk) {
    Axes cut;
    for (std::int64_t first = 0; first < 14; first += chunk)
      positions.append(first, std::min<std::int64_t>(chunk, 14 - first), cut);
    EXPECT_EQ(cut, axes) << "chunks of " << chunk;
  }
}

// There is no text between the images.
TEST(RopePositions, PlaceNeighbouringImages) {
  const TokenGrid images[] = {{.first_token = 0, .rows = 1, .columns = 2}, {.first_token = 2, .rows = 2, .columns = 1}};
  Axes axes;
  RopePositions(images).append(0, 5, axes);
  EXPECT_THAT(axes[0], ElementsAre(0, 0, 2, 2, 4));
  EXPECT_THAT(axes[1], ElementsAre(0, 0, 2, 3, 4));
  EXPECT_THAT(axes[2], ElementsAre(0, 1, 2, 2, 4));
}

}  // namespace
}  // namespace tessera
