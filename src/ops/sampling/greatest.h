// Finds the greatest of many numbers, on the CPU.
#pragma once

#include <cstdint>
#include <limits>

#include "tessera/base/float16.h"

namespace tessera {

// Returns the greatest number of x[0, n). NaN is left out. If all values are NaN, or n is 0, the result is -inf.
TESSERA_INLINE float greatest(const float* x, std::int64_t n) {
  constexpr std::int64_t kLanes = 64;
  float best = -std::numeric_limits<float>::infinity();
  float lanes[kLanes];
  for (float& lane : lanes) lane = best;
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
#pragma omp simd
    for (std::int64_t j = 0; j < kLanes; ++j) lanes[j] = x[i + j] > lanes[j] ? x[i + j] : lanes[j];
  }
  for (const float lane : lanes) best = lane > best ? lane : best;
  for (; i < n; ++i) best = x[i] > best ? x[i] : best;
  return best;
}

}  // namespace tessera
