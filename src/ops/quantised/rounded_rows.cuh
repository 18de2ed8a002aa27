// Rounds rows of x to E4M3 with a scale for each 128 columns of a row, or for each row: the first operand of
// quantised_fp8.cuh. A scale is the largest magnitude divided by 448, so that no scale spans rows. A group of zeros has
// the scale 1. NaN and infinities become NaN.
#pragma once

#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/quantised/quantised_values.cuh"

namespace tessera::cuda::quantised {

inline constexpr int kRoundedGroup = 128;  // columns
inline constexpr int kRoundingThreads = 256;
inline constexpr int kGroupThreads = kRoundedGroup / 8;  // of a group, each with eight columns

// [m, k] numbers of eight bits, and scales by column group: [groups, scale_stride], of which m are written.
struct RoundedRows {
  std::uint8_t* values;
  float* scales;
  std::int64_t scale_stride;
};

__device__ inline float largest_of(const Pack<float, 4>* values) {
  float largest = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) largest = fmaxf(largest, fabsf(values[i / 4].at[i % 4]));
  return largest;
}

template <class T>
__device__ inline void load_eight(const T* from, Pack<float, 4> (&to)[2]) {
  const Pack<T, 8> pack = load_pack<T, 8>(from);
#pragma unroll
  for (int i = 0; i < 8; ++i) to[i / 4].at[i % 4] = to_float(pack.at[i]);
}

__device__ inline uint2 round_eight(const Pack<float, 4> (&from)[2], float inverse) {
  std::uint32_t words[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const __nv_fp8x2_storage_t low = __nv_cvt_float2_to_fp8x2(
        make_float2(from[i].at[0] * inverse, from[i].at[1] * inverse), __NV_SATFINITE, __NV_E4M3);
    const __nv_fp8x2_storage_t high = __nv_cvt_float2_to_fp8x2(
        make_float2(from[i].at[2] * inverse, from[i].at[3] * inverse), __NV_SATFINITE, __NV_E4M3);
    words[i] = static_cast<std::uint32_t>(low) | static_cast<std::uint32_t>(high) << 16;
  }
  return make_uint2(words[0], words[1]);
}

// Sixteen threads have a group of columns of a row. Grid: m, by the blocks that kRoundingThreads make of a row's
// groups.
template <class T>
__global__ void __launch_bounds__(kRoundingThreads) round_groups(const T* x, RoundedRows to, int k) {
  let_next_begin();
  wait_for_previous();
  const std::int64_t row = blockIdx.x;
  const auto group = static_cast<int>(blockIdx.y * (kRoundingThreads / kGroupThreads) + threadIdx.x / kGroupThreads);
  const int column = group * kRoundedGroup + static_cast<int>(threadIdx.x) % kGroupThreads * 8;
  const bool is_real = column < k;
  Pack<float, 4> values[2] = {};
  if (is_real) load_eight(x + row * k + column, values);
  float largest = largest_of(values);
#pragma unroll
  for (int step = kGroupThreads / 2; step > 0; step /= 2)
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
  const float scale = largest > 0 ? largest / 448.0F : 1.0F;
  if (!is_real) return;
  *reinterpret_cast<uint2*>(to.values + row * k + column) = round_eight(values, 1.0F / scale);
  if (threadIdx.x % kGroupThreads == 0) to.scales[group * to.scale_stride + row] = scale;
}

// A block has a row. Grid: m.
template <class T>
__global__ void __launch_bounds__(kRoundingThreads) round_tokens(const T* x, RoundedRows to, int k) {
  __shared__ float largest_of_warp[kRoundingThreads / kWarp];
  let_next_begin();
  wait_for_previous();
  const std::int64_t row = blockIdx.x;
  Pack<float, 4> values[2];
  float largest = 0;
  for (int column = static_cast<int>(threadIdx.x) * 8; column < k; column += kRoundingThreads * 8) {
    load_eight(x + row * k + column, values);
    largest = fmaxf(largest, largest_of(values));
  }
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
  if (threadIdx.x % kWarp == 0) largest_of_warp[threadIdx.x / kWarp] = largest;
  __syncthreads();
#pragma unroll
  for (const float of_warp : largest_of_warp) largest = fmaxf(largest, of_warp);
  const float scale = largest > 0 ? largest / 448.0F : 1.0F;
  for (int column = static_cast<int>(threadIdx.x) * 8; column < k; column += kRoundingThreads * 8) {
    load_eight(x + row * k + column, values);
    *reinterpret_cast<uint2*>(to.values + row * k + column) = round_eight(values, 1.0F / scale);
  }
  if (threadIdx.x == 0) to.scales[row] = scale;
}

}  // namespace tessera::cuda::quantised
