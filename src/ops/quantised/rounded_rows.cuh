// Rounds rows of x to E4M3 with a scale for each 128 columns of a row, for products with matrices of E4M3. A scale is
// the largest magnitude divided by 448, so that no scale spans rows. A group of zeros has the scale 1. A checkpoint
// that was made for one scale a row loses nothing by finer ones.
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

// The scale of a group, of which each of kGroupThreads neighbouring threads has eight columns.
__device__ inline float scale_of_group(const Pack<float, 4> (&values)[2]) {
  float largest = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) largest = fmaxf(largest, fabsf(values[i / 4].at[i % 4]));
#pragma unroll
  for (int step = kGroupThreads / 2; step > 0; step /= 2)
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
  return largest > 0 ? largest / 448.0F : 1.0F;
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
  const float scale = scale_of_group(values);
  if (!is_real) return;
  *reinterpret_cast<uint2*>(to.values + row * k + column) = round_eight(values, 1.0F / scale);
  if (threadIdx.x % kGroupThreads == 0) to.scales[group * to.scale_stride + row] = scale;
}

}  // namespace tessera::cuda::quantised
