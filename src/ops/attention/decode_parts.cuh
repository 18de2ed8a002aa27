// Merges the partial sums of each row in the attention of single-row requests (decode_attention.cuh): first the sums of
// a block's warps, and then the sums of a request's parts. For each KV head, the block that ends last merges the parts.
#pragma once

#include <cstdint>

#include "tessera/ops/attention/decode_schedule.h"
#include "tessera/ops/cuda/async_copy.cuh"
#include "tessera/ops/cuda/cuda_math.cuh"
#include "tessera/ops/cuda/online_softmax.cuh"

namespace tessera::cuda {

inline constexpr int kDecodeHeads = 8;  // maximum number of query heads of a KV head

// The addresses of the output rows and of the partial results. A slot is the memory of one part's results (KeySegment).
template <class T>
struct DecodeParts {
  T* out;                  // [rows, heads, head_dim]
  T* values;               // [slots, heads, head_dim]; all elements are finite
  float* lse;              // [slots, heads]: log2 of the part's Σ exp
  std::int32_t* arrivals;  // [slots, kv_heads]: number of finished parts; 0 before and after each launch
  int heads;
  int kv_heads;
};

// The sums of a block's warps, in shared memory.
template <int kHeadDim, int kWarps>
struct WarpSums {
  float values[kWarps][kDecodeHeads][kHeadDim + 4];  // padded, so that neighbouring rows start in different banks
  float running_max[kWarps][kDecodeHeads];           // max of the scores times log2(e)
  float total[kWarps][kDecodeHeads];                 // sum of the weights
  bool last;                                         // whether this block ends last among its request's blocks
};

// Merges the warps' sums of each head, divides them by the sum of weights, and writes the results to `to`. Calls
// done(head, lse) once for each head, where lse is log2 of Σ exp.
template <class T, int kHeadDim, int kWarps, class F>
__device__ inline void join_warps(const WarpSums<kHeadDim, kWarps>& sums, int group, T* to, F&& done) {
  const int thread = static_cast<int>(threadIdx.x + threadIdx.y * kWarp);
  for (int i = thread; i < group * kHeadDim / 2; i += kWarps * kWarp) {
    const int head = i / (kHeadDim / 2);
    const int dim = i % (kHeadDim / 2) * 2;
    float most = sums.running_max[0][head];
#pragma unroll
    for (int w = 1; w < kWarps; ++w) most = fmaxf(most, sums.running_max[w][head]);
    float low = 0;
    float high = 0;
    float total = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const float weight = part_weight<BaseTwo>(sums.running_max[w][head], most);
      const float2 x = *reinterpret_cast<const float2*>(&sums.values[w][head][dim]);
      low += weight * x.x;
      high += weight * x.y;
      total += weight * sums.total[w][head];
    }
    *reinterpret_cast<std::uint32_t*>(to + head * kHeadDim + dim) = pack_two<T>(low / total, high / total);
    if (dim == 0) done(head, most + log2f(total));
  }
}

// Joins the parts begin … end - 1 of one head, in one warp. The loads of several parts are in flight together.
// Loads of other blocks' values bypass the L1 cache, which may still hold data of the previous launch.
template <class T, int kHeadDim>
__device__ inline void join_parts(const DecodeParts<T>& p, int begin, int end, int head, T* to) {
  constexpr int N = kHeadDim / kWarp < kPackSize<T> ? kHeadDim / kWarp : kPackSize<T>;
  constexpr int kRounds = kHeadDim / kWarp / N;
  constexpr int kAtOnce = 8;
  const int lane = static_cast<int>(threadIdx.x);
  OnlineSoftmax<BaseTwo> row;
  float sum[kRounds][N] = {};
  for (int first = begin; first < end; first += kAtOnce) {
    float lse[kAtOnce];
    Pack<T, N> x[kAtOnce][kRounds];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const std::int64_t at = static_cast<std::int64_t>(min(first + i, end - 1)) * p.heads + head;
      lse[i] = __ldcg(p.lse + at);
#pragma unroll
      for (int r = 0; r < kRounds; ++r)
        x[i][r] = load_pack_from_l2<T, N>(p.values + at * kHeadDim + (r * kWarp + lane) * N);
    }
    float most = row.running_max;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) most = fmaxf(most, lse[i]);
    const float shrink = row.raise(most);
#pragma unroll
    for (int r = 0; r < kRounds; ++r)
#pragma unroll
      for (int j = 0; j < N; ++j) sum[r][j] *= shrink;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const float weight = first + i < end ? row.weight(lse[i]) : 0.0f;
      row.sum += weight;
#pragma unroll
      for (int r = 0; r < kRounds; ++r)
#pragma unroll
        for (int j = 0; j < N; ++j) sum[r][j] += weight * to_float(x[i][r].at[j]);
    }
  }
#pragma unroll
  for (int r = 0; r < kRounds; ++r) {
    Pack<T, N> y;
#pragma unroll
    for (int j = 0; j < N; ++j) y.at[j] = from_float<T>(sum[r][j] / row.sum);
    store_pack(to + (r * kWarp + lane) * N, y);
  }
}

// Joins the sums of a segment. All threads of a block call this function after its warps have written their sums.
template <class T, int kHeadDim, int kWarps>
__device__ inline void finish_segment(const DecodeParts<T>& p, const KeySegment& s, int kv_head,
                                      WarpSums<kHeadDim, kWarps>& sums) {
  const int group = p.heads / p.kv_heads;
  const int warp = static_cast<int>(threadIdx.y);
  const int first_head = kv_head * group;
  T* const row = p.out + (static_cast<std::int64_t>(s.row) * p.heads + first_head) * kHeadDim;
  __syncthreads();
  if (s.parts == 1) {
    join_warps<T, kHeadDim>(sums, group, row, [](int, float) {});
    __syncthreads();
    return;
  }
  const std::int64_t part = static_cast<std::int64_t>(s.slot + s.part) * p.heads + first_head;
  join_warps<T, kHeadDim>(sums, group, p.values + part * kHeadDim,
                          [&](int head, float lse) { p.lse[part + head] = lse; });
  __threadfence();
  __syncthreads();
  if (warp == 0 && threadIdx.x == 0) {
    std::int32_t* const arrivals = p.arrivals + s.slot * p.kv_heads + kv_head;
    sums.last = atomicAdd(arrivals, 1) == s.parts - 1;
    if (sums.last) *arrivals = 0;
    __threadfence();
  }
  __syncthreads();
  if (!sums.last) return;
  for (int head = warp; head < group; head += kWarps)
    join_parts<T, kHeadDim>(p, s.slot, s.slot + s.parts, first_head + head, row + head * kHeadDim);
}

}  // namespace tessera::cuda
