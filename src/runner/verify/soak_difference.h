// Measures how far the rows of two computations of the same values differ.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera {

// Returns the greatest difference in rows of `cols` values, relative to the row's greatest magnitude, or infinity if a
// value is not finite. `scale` is the greatest magnitude seen so far, and is updated. Rows of fewer than kFew values,
// for example a classifier's, are compared relative to `scale`, since all of their values may be near zero.
inline double relative_difference(std::span<const float> a, std::span<const float> b, std::int64_t cols,
                                  double& scale) {
  constexpr std::size_t kFew = 16;
  double greatest = 0;
  const auto width = static_cast<std::size_t>(cols);
  for (std::size_t row = 0; row + width <= a.size(); row += width) {
    double magnitude = 0;
    double most = 0;
    for (std::size_t i = row; i < row + width; ++i) {
      const double d = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
      if (!std::isfinite(d)) return INFINITY;
      most = std::max(most, d);
      magnitude = std::max(magnitude, std::abs(static_cast<double>(b[i])));
    }
    scale = std::max(scale, magnitude);
    if (width < kFew) magnitude = scale;
    if (most > 0) greatest = std::max(greatest, most / std::max(magnitude, 1e-30));
  }
  return greatest;
}

}  // namespace tessera
