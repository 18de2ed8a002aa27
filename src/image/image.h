// Defines an image as pixels in memory, before any processing for a model.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera {

// RGB colours with 8 bits each. Rows run from the top, pixels from the left, without padding between rows.
struct Image {
  std::int32_t width = 0;           // pixels
  std::int32_t height = 0;          // pixels
  std::vector<std::uint8_t> rgb{};  // [height, width, 3]

  std::int64_t pixels() const { return std::int64_t{width} * height; }
  friend bool operator==(const Image&, const Image&) = default;
};

}  // namespace tessera
