// The basics that CPU kernels share: storage types and their conversions, exp/tanh/sigmoid that vectorise, and the
// macro that compiles a kernel once for each instruction set.
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
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>

#include "tessera/base/float16.h"
#include "tessera/base/status.h"
#include "tessera/ir/type.h"

// Compiles a function for AVX-512, AVX2 and the baseline; the loader picks one. Vector loops must stand in the function
// itself or in TESSERA_INLINE functions, because the body of a lambda is not cloned. Two cases are compiled only once,
// for the build's own instruction set: sanitizers, which start after the loader's choice, and compilers other than g++
// on x86-64, which cannot clone templates.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define TESSERA_CPU_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define TESSERA_CPU_CLONES
#endif

namespace tessera {

// e^x to about 1e-7 relative; 0 for -inf, inf past 88.72, NaN for NaN.
TESSERA_INLINE float fast_exp(float x) {
  x = x < -104.0f ? -104.0f : x;
  x = x > 89.0f ? 89.0f : x;
  // n = round(x / ln 2). Adding 1.5·2^23 leaves n in the low bits.
  const float magic = 12582912.0f;
  const float shifted = x * 1.44269504088896341f + magic;
  const float n = shifted - magic;
  // r = x - n ln 2 in two parts, |r| <= ln 2 / 2.
  float r = x - n * 0.693145751953125f;
  r = r - n * 1.42860677e-6f;
  // Taylor series of e^r up to r^7 / 7!. The remainder is below 6e-9.
  float p = 1.0f / 5040.0f;
  p = p * r + 1.0f / 720.0f;
  p = p * r + 1.0f / 120.0f;
  p = p * r + 1.0f / 24.0f;
  p = p * r + 1.0f / 6.0f;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  // 2^n in two factors, so that n = 128 and subnormal results come out right.
  const std::int32_t exponent = std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(magic);
  const std::int32_t half = exponent >> 1;
  const float scale_a = std::bit_cast<float>(static_cast<std::uint32_t>(half + 127) << 23);
  const float scale_b = std::bit_cast<float>(static_cast<std::uint32_t>(exponent - half + 127) << 23);
  return p * scale_a * scale_b;
}

// 1 / (1 + e^-x), to about 2e-7 relative.
TESSERA_INLINE float sigmoid(float x) { return 1.0f / (1.0f + fast_exp(-x)); }

// tanh(x) to about 4e-7 relative, small arguments included.
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

template <class T>
inline constexpr ir::DType kDTypeOf = std::is_same_v<T, float>      ? ir::DType::kFloat32
                                      : std::is_same_v<T, BFloat16> ? ir::DType::kBFloat16
                                                                    : ir::DType::kFloat16;

// Calls f.operator()<T>() with the storage type of a floating-point dtype and returns what it
// returns (a Status or a Result); kUnimplemented for any other dtype. `what` begins the error message.
//   return dispatch_dtype(x.dtype, "rms_norm", [&]<class T>() -> Result<std::unique_ptr<BoundOp>> { … });
template <class F>
auto dispatch_dtype(ir::DType dtype, std::string_view what, F&& f) -> decltype(f.template operator()<float>()) {
  switch (dtype) {
    case ir::DType::kFloat32: return f.template operator()<float>();
    case ir::DType::kBFloat16: return f.template operator()<BFloat16>();
    case ir::DType::kFloat16: return f.template operator()<Float16>();
    default: break;
  }
  return unimplemented(std::string(what) + " takes f32, bf16 and f16, not " + std::string(ir::dtype_name(dtype)));
}

}  // namespace tessera
