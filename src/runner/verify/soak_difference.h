// How far rows of two computations of the same are apart.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera {

// Of rows of `cols`: the greatest difference relative to its row's greatest magnitude; infinite for what is no number.
// `scale`: the greatest magnitude so far. A row of a few numbers, as a classifier's, has none of its own: they may all
// be near zero.
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
