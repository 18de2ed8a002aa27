// Resizes bytes bicubically with antialiasing. The result equals, bit for bit, that of PyTorch's
// interpolate(mode="bicubic", antialias=True) for a uint8 image on a CPU with AVX2. Pillow uses the same algorithm, but
// with 32-bit weights instead of 16-bit weights.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/image/image.h"

namespace tessera {

// The weights for resizing a line of numbers. Each output is a weighted sum of inputs.
//
// A line of `from` inputs is resized to `to` outputs. Output i has the centre c = (i + 1/2) · scale with scale = from /
// to. It uses the inputs whose distance to c is at most 2 · max(scale, 1). An input's weight is Keys' cubic (a = -1/2)
// of this distance divided by max(scale, 1). The weights are normalised to a sum of 1 and rounded to integers with
// `precision` binary places. `precision` is the greatest number of binary places at which the largest weight is still
// below 2^15.
struct ResampleTable {
  std::int32_t taps = 0;  // the greatest number of weights of any output
  std::int32_t precision = 0;
  std::vector<std::int32_t> first;    // [to]: index of each output's first input
  std::vector<std::int32_t> count;    // [to]: number of each output's inputs, at most `taps`
  std::vector<std::int16_t> weights;  // [to, taps]: the weights of each output's inputs
};

// Makes the weights for resizing a line of `from` values to `to` values. Precondition: both are at least 1.
ResampleTable make_resample_table(std::int32_t from, std::int32_t to);

// Pixels in which each row has all its red values, then all green, then all blue: [height, 3, width].
struct RowPlanes {
  std::int32_t width = 0;
  std::int32_t height = 0;
  std::vector<std::uint8_t> values{};

  const std::uint8_t* row(std::int64_t y, int colour) const { return values.data() + (y * 3 + colour) * width; }
  std::uint8_t* row(std::int64_t y, int colour) { return values.data() + (y * 3 + colour) * width; }
};

// Resizes the rows, then the columns. Each of these two steps rounds its results to bytes. A step is skipped if it
// would not change the size. Between the steps, the pixels take 3 · width · image.height bytes in addition to the
// result.
RowPlanes resize_bicubic(const Image& image, std::int32_t width, std::int32_t height);

}  // namespace tessera
