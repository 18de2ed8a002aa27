// Bicubic resizing with antialiasing, on bytes: PyTorch's interpolate(mode="bicubic", antialias=True) of a uint8 image
// on a CPU with AVX2, bit for bit. It is Pillow's algorithm with weights of 16 bits instead of 32.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/image/image.h"

namespace tessera {

// What each place of a resized line takes from the line it is made of.
//
// For an output i, centre c = (i + 1/2) · scale with scale = from / to: the inputs within 2 · max(scale, 1) of c,
// weighted by Keys' cubic (a = -1/2) of their distance over max(scale, 1), normalised to a sum of 1, and rounded to
// integers of `precision` binary places: the most with which the largest weight is below 2^15.
struct ResampleTable {
  std::int32_t taps = 0;  // the most weights of an output
  std::int32_t precision = 0;
  std::vector<std::int32_t> first;    // [to]: the first input
  std::vector<std::int32_t> count;    // [to]: inputs with a weight, at most `taps`
  std::vector<std::int16_t> weights;  // [to, taps]
};

// Both lengths at least 1.
ResampleTable make_resample_table(std::int32_t from, std::int32_t to);

// Colours apart, row by row: [height, 3, width].
struct RowPlanes {
  std::int32_t width = 0;
  std::int32_t height = 0;
  std::vector<std::uint8_t> values{};

  const std::uint8_t* row(std::int64_t y, int colour) const { return values.data() + (y * 3 + colour) * width; }
  std::uint8_t* row(std::int64_t y, int colour) { return values.data() + (y * 3 + colour) * width; }
};

// First rows are resized, then columns; each rounds to bytes. A direction whose size stays is left alone. Holds 3 bytes
// for width × image.height besides the result.
RowPlanes resize_bicubic(const Image& image, std::int32_t width, std::int32_t height);

}  // namespace tessera
