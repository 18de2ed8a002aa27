// The activation functions of gated layers on CUDA (activation.h).
#pragma once

#include <cuda_runtime.h>

namespace tessera::cuda {

// Returns x · sigmoid(u), with a relative error of about 2^-21 · (2 + |u|). If e^-u overflows (u < -88), the result is
// 0, which is the limit.
__device__ inline float times_sigmoid(float x, float u) {
  float power;
  float inverse;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(u * -1.44269504088896f));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(1.0f + power));
  return x * inverse;
}

struct Silu {
  __device__ float operator()(float x) const { return times_sigmoid(x, x); }
};
struct GeluTanh {
  // Uses (1 + tanh(a)) / 2 = sigmoid(2a), which does not lose precision for negative a.
  __device__ float operator()(float x) const {
    return times_sigmoid(x, 1.5957691216057308f * (x + 0.044715f * x * x * x));
  }
};
struct GeluErf {
  __device__ float operator()(float x) const { return 0.5f * x * erfcf(x * -0.70710678118654752f); }
};
struct QuickGelu {
  __device__ float operator()(float x) const { return times_sigmoid(x, 1.702f * x); }
};

}  // namespace tessera::cuda
