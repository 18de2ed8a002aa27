// The rows of an image are the vision tower's outputs for the image. Catches: rows of one image that are given to
// another image; rows that are evicted while a sequence holds them; rows that are kept although they were never
// written; and rows that never become free again.
#include "tessera/engine/images/image_rows.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

namespace tessera {
namespace {

Hash128 content(std::uint64_t n) { return {.high = n, .low = ~n}; }

class ImageRowsTest : public ::testing::Test {
 protected:
  ImageRowsTest() { ranges_.grow(10); }
  // Takes the image's rows, marks them as written, and releases them.
  void keep(std::uint64_t n, std::int64_t count) {
    ImageRows::Image* image = rows_.take(content(n), count);
    ASSERT_NE(image, nullptr);
    rows_.set_written(content(n), true);
    rows_.release(*image);
  }
  bool is_known(std::uint64_t n, std::int64_t count) {
    ImageRows::Image* image = rows_.take(content(n), count);
    const bool known = image != nullptr && image->is_written;
    if (image != nullptr) rows_.release(*image);
    return known;
  }

  RowRanges ranges_;
  ImageRows rows_{ranges_};
};

TEST_F(ImageRowsTest, EqualImagesShareTheirRows) {
  ImageRows::Image* first = rows_.take(content(1), 6);
  ImageRows::Image* second = rows_.take(content(1), 6);
  EXPECT_EQ(first, second);
  EXPECT_EQ(rows_.num_rows(), 6);
  EXPECT_EQ(rows_.take(content(2), 6), nullptr) << "4 rows are free";
  rows_.set_written(content(1), true);
  rows_.release(*first);
  EXPECT_EQ(rows_.take(content(2), 6), nullptr) << "one still holds them";
  rows_.release(*second);
  EXPECT_TRUE(is_known(1, 6));
}

TEST_F(ImageRowsTest, EvictsTheLeastRecentlyUsedFirst) {
  keep(1, 4);
  keep(2, 4);
  EXPECT_TRUE(is_known(1, 4));  // uses image 1 again
  keep(3, 5);
  EXPECT_EQ(rows_.num_rows(), 9);
  EXPECT_TRUE(is_known(1, 4));
  EXPECT_FALSE(is_known(2, 4));
}

TEST_F(ImageRowsTest, RowsThatWereNotWrittenAreNotKept) {
  rows_.release(*rows_.take(content(1), 4));
  EXPECT_EQ(rows_.num_rows(), 0);
  keep(2, 4);
  rows_.set_written(content(2), false);  // the forward failed
  EXPECT_EQ(rows_.num_rows(), 0);
  rows_.set_written(content(7), true);  // the image was evicted long ago
  EXPECT_EQ(ranges_.size(), 10);
  EXPECT_TRUE(ranges_.has_room(10));
}

// Takes and releases images at random, and checks that no row belongs to two held images.
TEST_F(ImageRowsTest, RandomUseKeepsRangesApart) {
  std::mt19937 random(7);
  std::vector<ImageRows::Image*> held;
  for (int step = 0; step < 20000; ++step) {
    if (random() % 2 == 0 && !held.empty()) {
      const std::size_t i = random() % held.size();
      rows_.set_written(held[i]->content, random() % 4 != 0);
      rows_.release(*held[i]);
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(i));
    } else if (const std::uint64_t n = random() % 12; held.size() < 6) {
      if (ImageRows::Image* image = rows_.take(content(n), 1 + static_cast<std::int64_t>(n) % 5)) held.push_back(image);
    }
    std::map<std::int64_t, Hash128> owners;
    for (const ImageRows::Image* image : held) {
      for (std::int64_t row = image->first_row; row < image->first_row + image->count; ++row) {
        ASSERT_LT(row, 10);
        ASSERT_EQ(owners.emplace(row, image->content).first->second, image->content) << "row " << row;
      }
    }
  }
  for (ImageRows::Image* image : held) rows_.release(*image);
  EXPECT_TRUE(rows_.make_room(10)) << "rows were lost";
}

}  // namespace
}  // namespace tessera
