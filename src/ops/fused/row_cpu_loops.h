// The loops of row kernels on the CPU. Each loop computes one operator for one row. Inputs and results are float32; T
// is the dtype to which a result is rounded.
#pragma once

#include <cstdint>

#include "tessera/ops/cpu/cpu_activation.h"
#include "tessera/ops/cpu/cpu_norm.h"

namespace tessera::row_loops {

template <class T>
TESSERA_INLINE float rounded(float x) {
  return to_float(from_float<T>(x));
}

template <class T>
TESSERA_CPU_CLONES void load(const T* from, float* to, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) to[i] = to_float(from[i]);
}

template <class T>
TESSERA_CPU_CLONES void store(const float* from, T* to, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) to[i] = from_float<T>(from[i]);
}

struct Add {
  TESSERA_INLINE float operator()(float a, float b) const { return a + b; }
};
struct Mul {
  TESSERA_INLINE float operator()(float a, float b) const { return a * b; }
};
struct Scale {
  float factor;
  TESSERA_INLINE float operator()(float x) const { return x * factor; }
};
struct Same {
  TESSERA_INLINE float operator()(float x) const { return x; }
};

// Computes y = f(a, b) for n elements of a. b has only `run` elements, and is repeated along a.
template <class T, class F>
TESSERA_CPU_CLONES void binary(const float* a, const float* b, float* y, std::int64_t n, std::int64_t run, F f) {
  for (std::int64_t first = 0; first < n; first += run) {
#pragma omp simd
    for (std::int64_t i = 0; i < run; ++i) y[first + i] = rounded<T>(f(a[first + i], b[i]));
  }
}

template <class T, class F>
TESSERA_CPU_CLONES void unary(const float* x, float* y, std::int64_t n, F f) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = rounded<T>(f(x[i]));
}

template <class T>
TESSERA_CPU_CLONES void rms_norm(const float* x, const float* w, float* y, std::int64_t n, std::int64_t run, float eps,
                                 NormForm form) {
  for (std::int64_t first = 0; first < n; first += run) {
    const float scale = rms_scale(x + first, run, eps);
#pragma omp simd
    for (std::int64_t i = 0; i < run; ++i) {
      const float value = x[first + i] * scale;
      const float weight = form == NormForm::kUnitOffset ? 1.0f + w[i] : w[i];
      y[first + i] = rounded<T>((form == NormForm::kRoundFirst ? rounded<T>(value) : value) * weight);
    }
  }
}

// Rotates heads of `head` elements. `table` has head / 2 cosines, then the same number of sines.
template <class T>
TESSERA_CPU_CLONES void rotary(const float* x, const float* table, float* y, std::int64_t n, std::int64_t head) {
  const std::int64_t half = head / 2;
  const float* sines = table + half;
  for (std::int64_t first = 0; first < n; first += head) {
    const float* low = x + first;
    const float* high = low + half;
#pragma omp simd
    for (std::int64_t i = 0; i < half; ++i) {
      y[first + i] = rounded<T>(low[i] * table[i] - high[i] * sines[i]);
      y[first + half + i] = rounded<T>(high[i] * table[i] + low[i] * sines[i]);
    }
  }
}

}  // namespace tessera::row_loops
