// Activation functions of one float, for CPU kernels. Each function is inlined into the loop that calls it.
#pragma once

#include "tessera/ops/cpu/cpu_math.h"

namespace tessera {

// Returns erfc(z) for z >= 0 as t · e^(p - z²), where p is a polynomial in t. The relative error is below 1.2e-7.
// Source: Numerical Recipes, 6.2, erfcc.
TESSERA_INLINE float erfc_positive(float z) {
  const float t = 1.0f / (1.0f + 0.5f * z);
  float p = 0.17087277f;
  p = p * t - 0.82215223f;
  p = p * t + 1.48851587f;
  p = p * t - 1.13520398f;
  p = p * t + 0.27886807f;
  p = p * t - 0.18628806f;
  p = p * t + 0.09678418f;
  p = p * t + 0.37409196f;
  p = p * t + 1.00002368f;
  p = p * t - 1.26551223f;
  return t * fast_exp(p - z * z);
}

struct Silu {
  TESSERA_INLINE float operator()(float x) const { return x * sigmoid(x); }
};
struct GeluTanh {
  // Uses (1 + tanh(a)) / 2 = sigmoid(2a), which does not lose precision for negative a.
  TESSERA_INLINE float operator()(float x) const {
    return x * sigmoid(1.5957691216057308f * (x + 0.044715f * x * x * x));
  }
};
struct GeluErf {
  TESSERA_INLINE float operator()(float x) const {
    const float z = x * 0.70710678118654752f;
    const float tail = 0.5f * erfc_positive(z < 0 ? -z : z);
    return x * (z < 0 ? tail : 1.0f - tail);
  }
};
struct QuickGelu {
  TESSERA_INLINE float operator()(float x) const { return x * sigmoid(1.702f * x); }
};
struct Softcap {
  float cap;
  TESSERA_INLINE float operator()(float x) const { return cap * fast_tanh(x / cap); }
};

}  // namespace tessera
