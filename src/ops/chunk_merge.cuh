// Joins the chunks of a row in the launch that computes them: the last block of a row and KV head to end does it, so
// that no other launch follows. For decodes of few requests: in FA2's kernel it made steps of 32 to 128 requests 1 to 8
// % slower than a launch that merges.
#pragma once

#include <cstdint>

#include "tessera/ops/cuda_math.cuh"

namespace tessera::cuda {

// Row r has the parts part_starts[r] … part_starts[r + 1] - 1, each by one block for each KV head.
template <class T>
struct ChunkMerge {
  const T* values;                  // [parts, heads, head_dim], finite
  const float* lse;                 // [parts, heads]: log2 of the part's Σ exp, -inf where it has no key
  const std::int32_t* part_starts;  // [rows + 1]
  std::int32_t* arrivals;           // [rows, kv_heads], 0 before and after each launch
  T* out;                           // [*, heads, head_dim]
  int heads;
  int kv_heads;
};

// One head of one row, by one warp. What other blocks wrote is read past the first-level cache, which may hold what the
// launch before had there.
template <class T, int kHeadDim>
__device__ inline void merge_head(const ChunkMerge<T>& m, int row, int head, int begin, int end) {
  constexpr int N = kHeadDim / kWarp;
  const int lane = static_cast<int>(threadIdx.x);
  const auto at = [&](int part) { return static_cast<std::int64_t>(part) * m.heads + head; };
  float greatest = -INFINITY;
  for (int part = begin + lane; part < end; part += kWarp) greatest = fmaxf(greatest, __ldcg(m.lse + at(part)));
  for (int step = kWarp / 2; step > 0; step /= 2)
    greatest = fmaxf(greatest, __shfl_xor_sync(0xffffffffu, greatest, step));

  float sum[N] = {};
  float weights = 0;
#pragma unroll 8
  for (int part = begin; part < end; ++part) {
    const float weight = exp2f(__ldcg(m.lse + at(part)) - greatest);
    const Pack<T, N> x = load_pack_from_l2<T, N>(m.values + at(part) * kHeadDim + lane * N);
#pragma unroll
    for (int i = 0; i < N; ++i) sum[i] += weight * to_float(x.at[i]);
    weights += weight;
  }
  Pack<T, N> y;
#pragma unroll
  for (int i = 0; i < N; ++i) y.at[i] = from_float<T>(sum[i] / weights);
  store_pack(m.out + (static_cast<std::int64_t>(row) * m.heads + head) * kHeadDim + lane * N, y);
}

// Called by all threads of a block of [warp, warps …] threads after it has written its part of `row`. Every head of the
// row's KV head has a warp of the block that ends last.
template <class T, int kHeadDim>
__device__ inline void merge_if_last(const ChunkMerge<T>& m, int row, int kv_head) {
  __shared__ bool is_last;
  const int begin = m.part_starts[row];
  const int end = m.part_starts[row + 1];
  const int warp = static_cast<int>(threadIdx.y + threadIdx.z * blockDim.y);
  const int warps = static_cast<int>(blockDim.y * blockDim.z);
  __threadfence();
  __syncthreads();
  if (warp == 0 && threadIdx.x == 0) {
    std::int32_t* arrivals = m.arrivals + row * m.kv_heads + kv_head;
    is_last = atomicAdd(arrivals, 1) == end - begin - 1;
    if (is_last) *arrivals = 0;
    __threadfence();
  }
  __syncthreads();
  if (!is_last) return;
  const int group = m.heads / m.kv_heads;
  for (int g = warp; g < group; g += warps) merge_head<T, kHeadDim>(m, row, kv_head * group + g, begin, end);
}

}  // namespace tessera::cuda
