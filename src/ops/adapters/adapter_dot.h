// The dot product of the adapters' CPU kernels.
#pragma once

#include <cstdint>

#include "tessera/ops/cpu/cpu_math.h"

namespace tessera {

// Returns Σ x · w. Each lane keeps a partial sum. The order of the additions depends on n alone.
template <class T>
TESSERA_CPU_CLONES inline float adapter_dot(const T* x, const T* w, std::int64_t n) {
  constexpr std::int64_t kLanes = 32;
  float lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
#pragma omp simd
    for (std::int64_t j = 0; j < kLanes; ++j) lanes[j] += to_float(x[i + j]) * to_float(w[i + j]);
  }
  float sum = 0;
  for (; i < n; ++i) sum += to_float(x[i]) * to_float(w[i]);
#pragma omp simd reduction(+ : sum)
  for (std::int64_t j = 0; j < kLanes; ++j) sum += lanes[j];
  return sum;
}

}  // namespace tessera
