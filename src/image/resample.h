// Resizes bytes bicubically with antialiasing. The result equals that of PyTorch's interpolate(mode="bicubic",
// antialias=True) for a uint8 image on a CPU with AVX2, bit for bit. It is Pillow's algorithm with 16-bit instead of
// 32-bit weights.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/image/image.h"

namespace tessera {

// The weights with which each output of a resized line sums the inputs.
//
// Output i has the centre c = (i + 1/2) · scale with scale = from / to. It uses the inputs within 2 · max(scale, 1) of
// c, weighted by Keys' cubic (a = -1/2) of their distance divided by max(scale, 1). The weights are normalised to a sum
// of 1 and rounded to integers with `precision` binary places. This is the greatest precision for which the largest
// weight is below 2^15.
struct ResampleTable {
  std::int32_t taps = 0;  // greatest number of weights of an output
  std::int32_t precision = 0;
  std::vector<std::int32_t> first;    // [to]: index of the first input
  std::vector<std::int32_t> count;    // [to]: number of weighted inputs, at most `taps`
  std::vector<std::int16_t> weights;  // [to, taps]
};

// Makes the weights for resizing a line of `from` values to `to` values. Precondition: both are at least 1.
ResampleTable make_resample_table(std::int32_t from, std::int32_t to);

// One plane per colour, interleaved by row: [height, 3, width].
struct RowPlanes {
  std::int32_t width = 0;
  std::int32_t height = 0;
  std::vector<std::uint8_t> values{};

  const std::uint8_t* row(std::int64_t y, int colour) const { return values.data() + (y * 3 + colour) * width; }
  std::uint8_t* row(std::int64_t y, int colour) { return values.data() + (y * 3 + colour) * width; }
};

// Resizes the rows, then the columns; each step rounds to bytes. Skips a direction whose size does not change. Besides
// the result it needs 3 bytes per pixel of width × image.height.
RowPlanes resize_bicubic(const Image& image, std::int32_t width, std::int32_t height);

}  // namespace tessera
