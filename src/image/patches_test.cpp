// Catches: patches whose values, grid or order differ from Hugging Face's; two different images with equal cache keys;
// image sizes that no vision tower accepts.
#include "tessera/image/patches.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/json.h"
#include "tessera/image/resample.h"
#include "tessera/image/test_images.h"

namespace tessera {
namespace {

using test::make_test_image;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ImageProcessorConfig small_patches() {
  ImageProcessorConfig config;
  config.patch_size = 2;
  config.merge_size = 2;
  config.min_pixels = 1;
  config.mean = {0, 0, 0};
  config.std_deviation = {1, 1, 1};
  config.rescale_factor = 1;
  return config;
}

TEST(Patches, EqualThoseOfHuggingFace) {
  const Result<Json> vectors = Json::read_file(test::data_path("patches.json"));
  ASSERT_TRUE(vectors.ok()) << vectors.status().to_string();
  const Json& processors = *vectors->find("processors");
  const Json::Array& cases = vectors->find("cases")->as_array();
  EXPECT_EQ(cases.size(), 200u);
  for (const Json& one : cases) {
    SCOPED_TRACE(one.dump());
    const Json::Array& row = one.as_array();
    const auto number = [&](std::size_t i) { return static_cast<std::int32_t>(row[i].as_int()); };
    const ImageProcessorConfig config = *parse_processor_config(*processors.find(row[0].as_string()), "patches.json");
    const Image image = make_test_image(number(1), number(2), static_cast<std::uint32_t>(number(3)));
    const Result<Patches> patches = make_patches(image, config);
    ASSERT_TRUE(patches.ok()) << patches.status().to_string();
    EXPECT_EQ(patches->grid, (PatchGrid{1, number(4), number(5)}));
    EXPECT_EQ(patches->grid, *patch_grid(image.width, image.height, config));
    EXPECT_EQ(test::sha256(patches->values), row[6].as_string());
  }
}

// The image of 8 × 4 pixels has 2 × 4 patches of 2 × 2 pixels. They form two blocks side by side, each of which is a
// token. The red value of each pixel is the pixel's number.
TEST(Patches, AreBlocksOfATokenWithColoursOutermost) {
  Image image{8, 4};
  for (std::uint8_t i = 0; i < 32; ++i) image.rgb.insert(image.rgb.end(), {i, 100, 200});
  const Patches patches = *make_patches(image, small_patches());
  EXPECT_EQ(patches.grid, (PatchGrid{1, 2, 4}));
  EXPECT_EQ(patches.tokens(), 2);
  ASSERT_EQ(patches.patch_values, 24);
  const auto reds = [&](std::size_t patch) {
    const float* at = patches.values.data() + patch * 24;
    return std::vector<float>(at, at + 4);
  };
  EXPECT_THAT(reds(0), ElementsAre(0, 1, 8, 9));
  EXPECT_THAT(reds(1), ElementsAre(2, 3, 10, 11));
  EXPECT_THAT(reds(2), ElementsAre(16, 17, 24, 25));
  EXPECT_THAT(reds(4), ElementsAre(4, 5, 12, 13));
  // A patch holds the red values of the first frame, then of the second frame. Green and blue follow in the same way.
  EXPECT_THAT(std::vector<float>(patches.values.begin(), patches.values.begin() + 24),
              ElementsAre(0, 1, 8, 9, 0, 1, 8, 9, 100, 100, 100, 100, 100, 100, 100, 100, 200, 200, 200, 200, 200, 200,
                          200, 200));
}

TEST(Patches, ContentDiffersIfTheTowersInputDiffers) {
  const Image image = make_test_image(64, 32, 1);
  const ImageProcessorConfig config;
  const Hash128 content = make_patches(image, config)->content;
  EXPECT_EQ(make_patches(image, config)->content, content);

  Image touched = image;
  touched.rgb[1000] = static_cast<std::uint8_t>(255 - touched.rgb[1000]);
  EXPECT_NE(make_patches(touched, config)->content, content);
  ImageProcessorConfig other = config;
  other.mean[1] += 0.01;
  EXPECT_NE(make_patches(image, other)->content, content);
  other = config;
  other.merge_size = 1;
  EXPECT_NE(make_patches(image, other)->content, content);

  // The two images have the same bytes, but different widths and heights.
  Image wide{56, 28};
  wide.rgb.assign(56 * 28 * 3, 7);
  Image high{28, 56};
  high.rgb = wide.rgb;
  ImageProcessorConfig any = config;
  any.min_pixels = 1;
  EXPECT_NE(make_patches(wide, any)->content, make_patches(high, any)->content);
}

TEST(Patches, GridsRoundHalvesToEvenWithinThePixelLimits) {
  ImageProcessorConfig config;
  config.min_pixels = 1;
  // 42 / 28 = 1.5 and 70 / 28 = 2.5 are both rounded to 2.
  EXPECT_EQ(*patch_grid(42, 70, config), (PatchGrid{1, 4, 4}));
  // No side is rounded to 0.
  EXPECT_EQ(*patch_grid(5, 1, config), (PatchGrid{1, 2, 2}));
  config = default_processor_config("qwen3_vl");
  const PatchGrid large = *patch_grid(32768, 32768, config);
  EXPECT_LE(large.patches() * 256, config.max_pixels);
  EXPECT_EQ(*patch_grid(200, 1, config), (PatchGrid{1, 2, 228}));
}

TEST(Patches, RefuseImpossibleSizes) {
  const ImageProcessorConfig config;
  for (const auto& [width, height] : {std::pair{0, 0}, {0, 5}, {-1, 5}, {201, 1}, {1, 100000}}) {
    const Status status = patch_grid(width, height, config).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr(fmt::format("{} × {}", width, height)));
  }
  EXPECT_TRUE(patch_grid(200, 1, config).ok());
  const Status status = make_patches(Image{4, 4, std::vector<std::uint8_t>(47)}, config).status();
  EXPECT_THAT(status.message(), HasSubstr("has 47 values; expected are 48"));
}

TEST(Resampling, KeepsAnEvenColourBecauseWeightsSumToOne) {
  Image image{97, 41};
  image.rgb.assign(97 * 41 * 3, 255);
  for (const std::uint8_t value : resize_bicubic(image, 30, 90).values) ASSERT_EQ(value, 255);
  const ResampleTable table = make_resample_table(1000, 3);
  EXPECT_GT(table.count[1], 1000 / 3 * 3);
  for (std::int32_t i = 0; i < 3; ++i) {
    std::int32_t sum = 0;
    for (std::int32_t k = 0; k < table.taps; ++k) sum += table.weights[static_cast<std::size_t>(i * table.taps + k)];
    EXPECT_NEAR(sum, 1 << table.precision, table.taps / 2);
  }
}

}  // namespace
}  // namespace tessera
