// Rounds rows to E4M3, for products with matrices of E4M3. Each group of 128 columns of a row has its own scale: the
// group's largest magnitude divided by 448, or 1 for a group of zeros. Checkpoints that were made for one scale per row
// can use these scales too, because a scale per group is only more precise.
#pragma once

#include <cuda_fp8.h>

#include <cstdint>

#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/cuda/cuda_math.cuh"

namespace tessera::cuda {

inline constexpr int kRoundedGroup = 128;                // number of columns in a group
inline constexpr int kGroupThreads = kRoundedGroup / 8;  // threads that convert a group, eight columns each

// Values [m, k] of eight bits, and scales [groups, scale_stride]. Each group of columns has m scales, one for each row.
struct RoundedRows {
  std::uint8_t* values;
  float* scales;
  std::int64_t scale_stride;
};

// Returns the largest value of a group's threads, in each thread of the group. The function synchronises only the
// kGroupThreads neighbouring lanes of the group.
__device__ inline float group_max(float x) {
  const unsigned lane = (threadIdx.y * blockDim.x + threadIdx.x) % kWarp;
  const unsigned lanes = 0xffffu << lane / kGroupThreads * kGroupThreads;
#pragma unroll
  for (int step = kGroupThreads / 2; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(lanes, x, step));
  return x;
}

__device__ inline std::uint32_t round_four(const float (&from)[8], int first, float inverse) {
  const __nv_fp8x2_storage_t low = __nv_cvt_float2_to_fp8x2(
      make_float2(from[first] * inverse, from[first + 1] * inverse), __NV_SATFINITE, __NV_E4M3);
  const __nv_fp8x2_storage_t high = __nv_cvt_float2_to_fp8x2(
      make_float2(from[first + 2] * inverse, from[first + 3] * inverse), __NV_SATFINITE, __NV_E4M3);
  return static_cast<std::uint32_t>(low) | static_cast<std::uint32_t>(high) << 16;
}

// Eight rounded columns of a row, and the scale of their group.
struct RoundedPack {
  uint2 values;
  float scale;
};

// Rounds eight columns of a row. The kGroupThreads threads of a group call it together; a thread beyond the row's end
// passes zeros.
template <class T>
__device__ inline RoundedPack round_pack(const Pack<T, 8>& pack) {
  static_assert(kWarp % kGroupThreads == 0 && kGroupThreads == 16, "group_max names sixteen lanes");
  float values[8];
  float largest = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    values[i] = to_float(pack.at[i]);
    largest = fmaxf(largest, fabsf(values[i]));
  }
  largest = group_max(largest);
  const float scale = largest > 0 ? largest / 448.0F : 1.0F;
  return {make_uint2(round_four(values, 0, 1.0F / scale), round_four(values, 4, 1.0F / scale)), scale};
}

// Writes eight columns of a row of k columns. The threads of a group call it together, as they call round_pack().
template <class T>
__device__ inline void store_rounded(const RoundedRows& to, std::int64_t row, std::int64_t column, std::int64_t k,
                                     const Pack<T, 8>& pack) {
  const RoundedPack rounded = round_pack(pack);
  if (column >= k) return;
  *reinterpret_cast<uint2*>(to.values + row * k + column) = rounded.values;
  if (column % kRoundedGroup == 0) to.scales[column / kRoundedGroup * to.scale_stride + row] = rounded.scale;
}

}  // namespace tessera::cuda
