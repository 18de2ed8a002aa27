// Rotates the last elements of a head of latent attention, on the CPU (rotary.h has the formula).
#pragma once

#include <cstdint>

#include "tessera/ops/cpu/cpu_math.h"

namespace tessera {

// Rounds the value to type X, then converts it to the storage type Y.
template <class X, class Y>
TESSERA_INLINE Y stored(float value) {
  return from_float<Y>(to_float(from_float<X>(value)));
}

// Rotates the pairs (x[first · i], x[first · i + second]) for all i below `half`. `cosines` holds `half` cosines, then
// `half` sines.
template <class X, class Y>
TESSERA_INLINE void turn_pairs(const X* x, const float* cosines, Y* y, std::int64_t half, std::int64_t first,
                               std::int64_t second) {
  const float* sines = cosines + half;
#pragma omp simd
  for (std::int64_t i = 0; i < half; ++i) {
    const float a = to_float(x[first * i]);
    const float b = to_float(x[first * i + second]);
    y[first * i] = stored<X, Y>(a * cosines[i] - b * sines[i]);
    y[first * i + second] = stored<X, Y>(b * cosines[i] + a * sines[i]);
  }
}

// Rotates the `half` pairs at the end of a head. Each call of turn_pairs() is inlined with its constant arguments, so
// that both loops vectorise.
template <class X, class Y>
TESSERA_INLINE void turn(const X* x, const float* cosines, Y* y, std::int64_t half, bool interleaved) {
  if (interleaved)
    turn_pairs(x, cosines, y, half, 2, 1);
  else
    turn_pairs(x, cosines, y, half, 1, half);
}

}  // namespace tessera
