// E4M3 as a storage type of CUDA kernels, for caches of keys and values (ops/cache/cache_type.h).
#pragma once

#include <cuda_fp8.h>

#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>

#include "tessera/ops/cuda/cuda_math.cuh"

namespace tessera::cuda {

__device__ inline float to_float(__nv_fp8_e4m3 x) { return static_cast<float>(x); }

// Converts to E4M3, rounded to nearest even. Magnitudes above 448, infinities included, become 448; NaN stays NaN.
template <>
__device__ inline __nv_fp8_e4m3 from_float<__nv_fp8_e4m3>(float x) {
  __nv_fp8_e4m3 y;
  y.__x = __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
  return y;
}

// Returns what a cache of type Y stores for `value`. Caches without scales ignore `scale`.
template <class Y>
__device__ inline Y to_cache(float value, [[maybe_unused]] float scale) {
  if constexpr (std::is_same_v<Y, __nv_fp8_e4m3>) return from_float<Y>(__fdiv_rn(value, scale));
  return from_float<Y>(value);
}

// Returns the scale at `scale` in device memory, or 1 if `scale` is null.
__device__ inline float scale_or_one(const float* scale) { return scale == nullptr ? 1.0f : *scale; }

// Converts two neighbouring E4M3 numbers, the first in the lower byte, to a pair of T. The conversion is exact.
template <class T>
__device__ inline std::uint32_t widen_two(std::uint32_t two) {
  const __half2_raw halves = __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(two), __NV_E4M3);
  if constexpr (std::is_same_v<T, __half>) return halves.x | static_cast<std::uint32_t>(halves.y) << 16;
  const float2 floats = __half22float2(__half2(halves));
  const __nv_bfloat162 wide = __floats2bfloat162_rn(floats.x, floats.y);
  return reinterpret_cast<const std::uint32_t&>(wide);
}

// Calls f.operator()<Y>() with the device type of a cache's elements, as dispatch_dtype() does.
template <class F>
auto dispatch_cache_type(ir::DType dtype, std::string_view what, F&& f) -> decltype(f.template operator()<float>()) {
  if (dtype == ir::DType::kFloat8E4M3) return f.template operator()<__nv_fp8_e4m3>();
  return dispatch_dtype(dtype, what, std::forward<F>(f));
}

}  // namespace tessera::cuda
