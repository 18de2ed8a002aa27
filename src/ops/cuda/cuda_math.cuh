// The code that all CUDA kernels share: storage types and their conversions, 16-byte accesses, and sums over warps and
// blocks.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "tessera/base/status.h"
#include "tessera/ir/type.h"

namespace tessera::cuda {

inline constexpr int kWarp = 32;

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ inline float to_float(__half x) { return __half2float(x); }

// Converts to T, rounded to nearest even.
template <class T>
__device__ inline T from_float(float x);
template <>
__device__ inline float from_float<float>(float x) {
  return x;
}
template <>
__device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}
template <>
__device__ inline __half from_float<__half>(float x) {
  return __float2half_rn(x);
}

// Rounds two numbers to T and packs them into a register, the first in the lower half. Converting two numbers to
// bfloat16 at once is four times as fast as converting them one by one.
template <class T>
__device__ inline std::uint32_t pack_two(float low, float high) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const std::uint32_t&>(pair);
  } else {
    const __half2 pair = __floats2half2_rn(low, high);
    return reinterpret_cast<const std::uint32_t&>(pair);
  }
}
template <class T>
__device__ inline float2 unpack_two(std::uint32_t pair) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xFFFF0000U));
  } else {
    return __half22float2(reinterpret_cast<const __half2&>(pair));
  }
}

// Rounds x to T and back, as if it had been stored. A fused kernel calls it wherever the operator's native form
// (ir/op_decl.h) stores an intermediate result.
template <class T>
__device__ inline float rounded(float x) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __uint_as_float(pack_two<T>(0, x));  // the upper half of a float32 is a bfloat16
  } else {
    return to_float(from_float<T>(x));
  }
}
template <class T>
__device__ inline float2 rounded_two(float low, float high) {
  return unpack_two<T>(pack_two<T>(low, high));
}

// N neighbouring elements, loaded and stored in one access of at most 16 bytes. Address and row length must be
// multiples of N elements.
template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  static_assert(sizeof(T) * N <= 16);
  T at[N];
};
// Rounds numbers to T.
template <class T, int N>
__device__ inline Pack<T, N> pack_of(const float (&numbers)[N]) {
  Pack<T, N> pack;
  if constexpr (sizeof(T) == 2 && N % 2 == 0) {
#pragma unroll
    for (int i = 0; i < N / 2; ++i)
      reinterpret_cast<std::uint32_t*>(&pack)[i] = pack_two<T>(numbers[2 * i], numbers[2 * i + 1]);
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) pack.at[i] = from_float<T>(numbers[i]);
  }
  return pack;
}
template <class T>
inline constexpr int kPackSize = static_cast<int>(16 / sizeof(T));

template <class T, int N>
__device__ inline Pack<T, N> load_pack(const T* from) {
  return *reinterpret_cast<const Pack<T, N>*>(from);
}
// Loads a pack from the L2 cache. The load bypasses L1, because another block of the launch may have written the pack.
template <class T, int N>
__device__ inline Pack<T, N> load_pack_from_l2(const T* from) {
  using Word = std::conditional_t<sizeof(T) * N == 16, uint4, std::conditional_t<sizeof(T) * N == 8, uint2, unsigned>>;
  static_assert(sizeof(Word) == sizeof(Pack<T, N>));
  const Word word = __ldcg(reinterpret_cast<const Word*>(from));
  return reinterpret_cast<const Pack<T, N>&>(word);
}
template <class T, int N>
__device__ inline void store_pack(T* to, const Pack<T, N>& values) {
  *reinterpret_cast<Pack<T, N>*>(to) = values;
}

// Returns the sum over a group of `width` neighbouring lanes, in each of these lanes. `width` is a power of two.
__device__ inline float warp_sum(float x, int width = kWarp) {
  for (int step = width / 2; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step, kWarp);
  return x;
}

// Returns the sum over the block in every thread. The block must consist of whole warps. `scratch` is shared memory for
// 32 floats. Two calls with the same scratch need a barrier between them.
__device__ inline float block_sum(float x, float* scratch) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  x = warp_sum(x);
  if (warps == 1) return x;
  if (lane == 0) scratch[warp] = x;
  __syncthreads();
  return warp_sum(lane < warps ? scratch[lane] : 0.0f);
}

// Calls f.operator()<T>() with the device type of a floating-point dtype. Returns kUnimplemented for any other dtype.
// `what` begins the error message.
template <class F>
auto dispatch_dtype(ir::DType dtype, std::string_view what, F&& f) -> decltype(f.template operator()<float>()) {
  switch (dtype) {
    case ir::DType::kFloat32: return f.template operator()<float>();
    case ir::DType::kBFloat16: return f.template operator()<__nv_bfloat16>();
    case ir::DType::kFloat16: return f.template operator()<__half>();
    default: break;
  }
  return unimplemented(std::string(what) + " takes f32, bf16 and f16, not " + std::string(ir::dtype_name(dtype)));
}

}  // namespace tessera::cuda
