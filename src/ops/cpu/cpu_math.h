// The code that all CPU kernels share: storage types and their conversions, the macro that compiles a kernel once for
// each instruction set, and exp, tanh and sigmoid in forms that compilers can vectorise.
//
//   template <class T>
//   TESSERA_CPU_CLONES void silu_row(const T* x, T* y, std::int64_t n) {
//     for (std::int64_t i = 0; i < n; ++i) {
//       const float v = to_float(x[i]);
//       y[i] = from_float<T>(v * sigmoid(v));
//     }
//   }
//
// Everything here is inlined, so it is compiled for the instruction set of the function that calls it.
#pragma once

#include <bit>
#include <cstdint>

#include "tessera/base/cpu_clones.h"
#include "tessera/base/float16.h"
#include "tessera/ir/storage_type.h"

namespace tessera {

// Returns e^x with a relative error of about 1e-7. The result is 0 for -inf, inf for x above 88.72, and NaN for NaN.
TESSERA_INLINE float fast_exp(float x) {
  x = x < -104.0f ? -104.0f : x;
  x = x > 89.0f ? 89.0f : x;
  // n = round(x / ln 2). Adding 1.5·2^23 leaves n in the low bits of `shifted`.
  const float magic = 12582912.0f;
  const float shifted = x * 1.44269504088896341f + magic;
  const float n = shifted - magic;
  // r = x - n · ln 2, so |r| <= ln 2 / 2. For precision, n · ln 2 is subtracted in two parts.
  float r = x - n * 0.693145751953125f;
  r = r - n * 1.42860677e-6f;
  // The Taylor series of e^r up to r^7 / 7!. The remainder is below 6e-9.
  float p = 1.0f / 5040.0f;
  p = p * r + 1.0f / 720.0f;
  p = p * r + 1.0f / 120.0f;
  p = p * r + 1.0f / 24.0f;
  p = p * r + 1.0f / 6.0f;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  // Multiplies by 2^n in two factors, so that the result is right for n = 128 and for subnormal results.
  const std::int32_t exponent = std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(magic);
  const std::int32_t half = exponent >> 1;
  const float scale_a = std::bit_cast<float>(static_cast<std::uint32_t>(half + 127) << 23);
  const float scale_b = std::bit_cast<float>(static_cast<std::uint32_t>(exponent - half + 127) << 23);
  return p * scale_a * scale_b;
}

// Returns 1 / (1 + e^-x) with a relative error of about 2e-7.
TESSERA_INLINE float sigmoid(float x) { return 1.0f / (1.0f + fast_exp(-x)); }

// Returns tanh(x) with a relative error of about 4e-7, also for small arguments.
TESSERA_INLINE float fast_tanh(float x) {
  const float large = 1.0f - 2.0f / (fast_exp(2.0f * x) + 1.0f);
  const float s = x * x;
  float p = 62.0f / 2835.0f;
  p = p * s - 17.0f / 315.0f;
  p = p * s + 2.0f / 15.0f;
  p = p * s - 1.0f / 3.0f;
  const float small = x + x * s * p;
  return s < 0.09f ? small : large;
}

}  // namespace tessera
