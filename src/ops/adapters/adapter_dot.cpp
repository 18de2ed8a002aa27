#include "tessera/ops/adapters/adapter_dot.h"

#include "tessera/base/float16.h"
#include "tessera/ops/cpu/cpu_math.h"

namespace tessera {

// Each lane keeps a partial sum.
template <class T>
TESSERA_CPU_CLONES float adapter_dot(const T* x, const T* w, std::int64_t n) {
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

template float adapter_dot(const float* x, const float* w, std::int64_t n);
template float adapter_dot(const BFloat16* x, const BFloat16* w, std::int64_t n);
template float adapter_dot(const Float16* x, const Float16* w, std::int64_t n);

}  // namespace tessera
