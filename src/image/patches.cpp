#include "tessera/image/patches.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "tessera/image/resample.h"

namespace tessera {
namespace {

// The normalised number for each byte value 0 … 255. It is (value - mean / rescale) / (deviation / rescale), computed
// in float32 as by transformers.
using ColourTable = std::array<float, 256>;

std::array<ColourTable, 3> normalising_tables(const ImageProcessorConfig& config) {
  std::array<ColourTable, 3> tables{};
  const float range = static_cast<float>(1.0 / config.rescale_factor);
  for (std::size_t c = 0; c < 3; ++c) {
    const float mean = static_cast<float>(config.mean[c]) * range;
    const float deviation = static_cast<float>(config.std_deviation[c]) * range;
    for (std::size_t value = 0; value < 256; ++value) {
      tables[c][value] = (static_cast<float>(value) - mean) / deviation;
    }
  }
  return tables;
}

// Writes the patch whose first pixel is (x, y), as [3, temporal_patch_size, patch_size, patch_size].
void write_patch(const RowPlanes& pixels, std::int64_t x, std::int64_t y, const ImageProcessorConfig& config,
                 const std::array<ColourTable, 3>& tables, float* to) {
  const std::int64_t side = config.patch_size;
  const std::int64_t frame = side * side;
  for (int c = 0; c < 3; ++c) {
    const ColourTable& table = tables[static_cast<std::size_t>(c)];
    for (std::int64_t row = 0; row < side; ++row) {
      const std::uint8_t* from = pixels.row(y + row, c) + x;
      for (std::int64_t i = 0; i < side; ++i) to[row * side + i] = table[from[i]];
    }
    for (std::int32_t t = 1; t < config.temporal_patch_size; ++t) {
      std::memcpy(to + t * frame, to, static_cast<std::size_t>(frame) * sizeof(float));
    }
    to += config.temporal_patch_size * frame;
  }
}

void write_patches(const RowPlanes& pixels, const ImageProcessorConfig& config, Patches& patches) {
  const std::array<ColourTable, 3> tables = normalising_tables(config);
  const std::int64_t merge = config.merge_size;
  const std::int64_t side = config.patch_size;
  float* to = patches.values.data();
  for (std::int64_t block_y = 0; block_y < patches.grid.h; block_y += merge) {
    for (std::int64_t block_x = 0; block_x < patches.grid.w; block_x += merge) {
      for (std::int64_t i = 0; i < merge * merge; ++i, to += patches.patch_values) {
        write_patch(pixels, (block_x + i % merge) * side, (block_y + i / merge) * side, config, tables, to);
      }
    }
  }
}

// Returns the hash of the content. Images of different users share caches by this hash, so nobody must be able to make
// an image that has the hash of another image. Hash128 alone does not ensure that, so the pixels are hashed with
// SHA-256, and Hash128 hashes only the digest.
Result<Hash128> content_of(const RowPlanes& pixels, const ImageProcessorConfig& config) {
  std::array<unsigned char, 32> digest{};
  if (EVP_Digest(pixels.values.data(), pixels.values.size(), digest.data(), nullptr, EVP_sha256(), nullptr) != 1) {
    return internal_error("libcrypto has no SHA-256");
  }
  Hasher hasher;
  hasher.add(std::string_view(reinterpret_cast<const char*>(digest.data()), digest.size()));
  hasher.add(pixels.width);
  hasher.add(pixels.height);
  hasher.add(config.patch_size);
  hasher.add(config.temporal_patch_size);
  hasher.add(config.merge_size);
  hasher.add(config.rescale_factor);
  for (const double mean : config.mean) hasher.add(mean);
  for (const double deviation : config.std_deviation) hasher.add(deviation);
  return hasher.finish();
}

}  // namespace

Result<PatchGrid> patch_grid(std::int32_t width, std::int32_t height, const ImageProcessorConfig& config) {
  constexpr double kMostRatio = 200;
  const std::int32_t longer = std::max(width, height);
  const std::int32_t shorter = std::min(width, height);
  if (shorter < 1 || static_cast<double>(longer) / shorter > kMostRatio) {
    return invalid_argument(fmt::format(
        "an image has {} × {} pixels; accepted are sides of at least 1 pixel and a ratio of the sides of at most {}",
        width, height, kMostRatio));
  }
  const double unit = config.side_unit();
  const double pixels = static_cast<double>(width) * height;
  // Rounds the sides to whole units. A half is rounded to the even number, as by Python's round().
  double h = std::nearbyint(height / unit);
  double w = std::nearbyint(width / unit);
  const double resized = h * unit * (w * unit);
  if (resized > static_cast<double>(config.max_pixels)) {
    const double shrink = std::sqrt(pixels / static_cast<double>(config.max_pixels));
    h = std::max(1.0, std::floor(height / shrink / unit));
    w = std::max(1.0, std::floor(width / shrink / unit));
  } else if (resized < static_cast<double>(config.min_pixels)) {
    const double grow = std::sqrt(static_cast<double>(config.min_pixels) / pixels);
    h = std::ceil(height * grow / unit);
    w = std::ceil(width * grow / unit);
  }
  return PatchGrid{1, static_cast<std::int32_t>(h) * config.merge_size,
                   static_cast<std::int32_t>(w) * config.merge_size};
}

Result<Patches> make_patches(const Image& image, const ImageProcessorConfig& config) {
  const PatchGrid grid = TRY(patch_grid(image.width, image.height, config));
  if (static_cast<std::int64_t>(image.rgb.size()) != image.pixels() * 3) {
    return invalid_argument(fmt::format("an image of {} × {} pixels has {} values; expected are {}", image.width,
                                        image.height, image.rgb.size(), image.pixels() * 3));
  }
  const RowPlanes pixels = resize_bicubic(image, grid.w * config.patch_size, grid.h * config.patch_size);
  Patches patches{grid, config.merge_size, config.patch_values()};
  patches.content = TRY(content_of(pixels, config));
  patches.values.resize(static_cast<std::size_t>(grid.patches() * patches.patch_values));
  write_patches(pixels, config, patches);
  return patches;
}

}  // namespace tessera
