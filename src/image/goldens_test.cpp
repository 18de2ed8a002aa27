// Catches: patches of an image that differ from the golden file's pixel_values, which are the vision tower's inputs.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "tessera/base/json.h"
#include "tessera/base/testing/paths.h"
#include "tessera/image/decode.h"
#include "tessera/image/patches.h"
#include "tessera/image/test_images.h"

namespace tessera {
namespace {

// Returns the path of a folder. A name that begins with "shared/" means a folder beside the repository. Any other name
// means a folder in the repository.
std::string golden_folder(const std::string& name) {
  constexpr std::string_view kShared = "shared/";
  if (name.starts_with(kShared)) return testing::shared_path("goldens/" + name.substr(kShared.size()));
  return testing::data_path("goldens/" + name);
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Reads one tensor's float32 values from a safetensors file. SafetensorsFile cannot be used here, because its folder
// is in a higher layer than src/image.
std::vector<float> read_tensor(const std::string& file, const std::string& name) {
  std::uint64_t header_size = 0;
  std::memcpy(&header_size, file.data(), sizeof header_size);
  const Json header = *Json::parse(std::string_view(file).substr(8, header_size), "header");
  const Json::Array& range = header.find(name)->find("data_offsets")->as_array();
  const auto begin = static_cast<std::size_t>(range[0].as_int());
  const auto end = static_cast<std::size_t>(range[1].as_int());
  std::vector<float> values((end - begin) / sizeof(float));
  std::memcpy(values.data(), file.data() + 8 + header_size + begin, end - begin);
  return values;
}

class Goldens : public ::testing::TestWithParam<std::string> {};

TEST_P(Goldens, PixelValuesAreEqual) {
  const std::string folder = golden_folder(GetParam());
  if (GetParam().starts_with("shared/") && !std::filesystem::exists(folder))
    GTEST_SKIP() << "no shared data: goldens" << GetParam().substr(GetParam().find('/'));
  const ImageProcessorConfig config = *read_processor_config(folder + "/preprocessor_config.json");
  const std::string tensors = read_file(folder + "/golden.safetensors");
  const Json::Array cases = Json::read_file(folder + "/golden.json")->find("cases")->as_array();
  ASSERT_FALSE(cases.empty());
  for (std::size_t i = 0; i < cases.size(); ++i) {
    std::vector<float> values;
    const Json::Array& sizes = cases[i].find("image_sizes_wh")->as_array();
    const Json::Array& grids = cases[i].find("image_grid_thw")->as_array();
    for (std::size_t k = 0; k < sizes.size(); ++k) {
      const std::int64_t width = sizes[k].as_array()[0].as_int();
      const std::int64_t height = sizes[k].as_array()[1].as_int();
      const std::string ppm =
          fmt::format("P6 {} {} 255\n{}", width, height, read_file(fmt::format("{}/image_{}_{}.rgb", folder, i, k)));
      const Patches patches = *make_patches(*decode_image(test::as_file(ppm)), config);
      const Json::Array& grid = grids[k].as_array();
      EXPECT_EQ(patches.grid.h, grid[1].as_int());
      EXPECT_EQ(patches.grid.w, grid[2].as_int());
      values.insert(values.end(), patches.values.begin(), patches.values.end());
    }
    EXPECT_EQ(values, read_tensor(tensors, fmt::format("pixel_values_{}", i))) << "case " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Goldens,
                         ::testing::Values("qwen2-vl", "qwen2.5-vl", "qwen3-vl", "qwen3-vl-moe", "qwen3.5-vl"));
INSTANTIATE_TEST_SUITE_P(Larger, Goldens,
                         ::testing::Values("shared/qwen2.5-vl", "shared/qwen3-vl", "shared/qwen3.5-vl"));

}  // namespace
}  // namespace tessera
