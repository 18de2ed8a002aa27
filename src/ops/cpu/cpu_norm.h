// The arithmetic of an RMS norm (norm.h) on the CPU, shared by the norms and by operators that contain an RMS norm.
#pragma once

#include <cmath>
#include <cstdint>

#include "tessera/ops/contract/norm_form.h"
#include "tessera/ops/cpu/cpu_math.h"

namespace tessera {

template <class T>
TESSERA_INLINE float square(T x) {
  const float v = to_float(x);
  return v * v;
}

// Returns Σ x². The function uses several vectors of partial sums, because with a single vector each addition would
// wait for the previous one.
template <class T>
TESSERA_INLINE float sum_of_squares(const T* x, std::int64_t n) {
  constexpr std::int64_t kLanes = 32;
  float lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
#pragma omp simd
    for (std::int64_t j = 0; j < kLanes; ++j) lanes[j] += square(x[i + j]);
  }
  float sum = 0;
  for (; i < n; ++i) sum += square(x[i]);
#pragma omp simd reduction(+ : sum)
  for (std::int64_t j = 0; j < kLanes; ++j) sum += lanes[j];
  return sum;
}

// Returns 1/√(mean(x²) + eps).
template <class T>
TESSERA_INLINE float rms_scale(const T* x, std::int64_t n, float eps) {
  return 1.0f / std::sqrt(sum_of_squares(x, n) / static_cast<float>(n) + eps);
}

// Returns T(x · scale) · w, x · scale · w or x · scale · (1 + w), depending on `form`. T(v) is v rounded to T. The
// result itself is not rounded yet.
template <class T>
TESSERA_INLINE float normalised(T x, T w, float scale, NormForm form) {
  const float value = to_float(x) * scale;
  const float weight = form == NormForm::kUnitOffset ? 1.0f + to_float(w) : to_float(w);
  return (form == NormForm::kRoundFirst ? to_float(from_float<T>(value)) : value) * weight;
}

}  // namespace tessera
