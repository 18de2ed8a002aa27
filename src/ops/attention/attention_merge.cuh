// Merges a row's partial attention results (split-KV). Each partial result covers a range of the row's keys.
#pragma once

#include "tessera/ops/attention/cuda_attention.h"
#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/cuda/cuda_math.cuh"
#include "tessera/ops/cuda/online_softmax.cuh"

namespace tessera::cuda {

// Returns the number of rows without padding in a forward that is padded to `bucket_rows` rows. Requests whose rows do
// not fit in these rows are not counted.
__device__ inline int count_real_rows(const int* num_requests, const int* query_starts, int bucket_rows) {
  int n = *num_requests;
  while (n > 0 && query_starts[n] > bucket_rows) --n;
  return n > 0 ? query_starts[n] : 0;
}

// The arguments of merge_states. A part is a row's partial result, over a range of the row's keys.
//
// With part_starts, row r has the parts part_starts[r] … part_starts[r + 1] - 1. A row without parts is not written. If
// out_rows is also given, the result of row r is written to row out_rows[r] of `out`.
//
// Without part_starts, row r has parts_per_row parts, beginning with part r · parts_per_row. In this case num_requests
// and query_starts say how many rows are not padding.
struct MergeStates {
  const void* values;  // Part[parts, heads, head_dim]; all elements are finite
  const float* lse;    // [parts, heads]: log2 of the part's Σ exp; -inf for a part without keys
  const int* part_starts;
  const int* out_rows;
  int parts_per_row;
  const int* num_requests;
  const int* query_starts;
  void* out;  // X[rows, heads, head_dim]
  int rows;
  int heads;
  int head_dim;
};

inline constexpr int kMergeThreads = 128;

// Returns, in every thread of the block, the maximum of x over all these threads. `scratch` points to shared memory
// with one float for each warp.
__device__ inline float merge_max(float x, float* scratch) {
  x = warp_max(x);
  if (threadIdx.x % kWarp == 0) scratch[threadIdx.x / kWarp] = x;
  __syncthreads();
  for (int warp = 0; warp < kMergeThreads / kWarp; ++warp) x = fmaxf(x, scratch[warp]);
  return x;
}

// Merges the parts of each row. blockIdx.x is the head, and blockIdx.y is the row. A group of `lanes` neighbouring
// threads processes one part, and each thread takes kPack elements at a time. The groups of a block process different
// parts of the row at the same time, so the loads of several parts are in flight together.
template <class Part, class X, int kPack>
__global__ void __launch_bounds__(kMergeThreads) merge_states(const MergeStates m) {
  let_next_begin();
  wait_for_previous();
  const int head = static_cast<int>(blockIdx.x);
  const int row = static_cast<int>(blockIdx.y);
  const int thread = static_cast<int>(threadIdx.x);
  int begin = row * m.parts_per_row;
  int end = begin + m.parts_per_row;
  if (m.part_starts != nullptr) {
    begin = m.part_starts[row];
    end = m.part_starts[row + 1];
    if (begin == end) return;
  } else if (row >= count_real_rows(m.num_requests, m.query_starts, m.rows)) {
    return;
  }

  __shared__ float scratch[kMergeThreads / kWarp];
  __shared__ float sums[kMergeThreads][kPack + 1];  // sums of weighted values; the last column is the sum of weights
  const auto lse_at = [&](int part) { return m.lse[static_cast<long>(part) * m.heads + head]; };
  float most = -INFINITY;
  for (int part = begin + thread; part < end; part += kMergeThreads) most = fmaxf(most, lse_at(part));
  most = merge_max(most, scratch);

  const auto* values = static_cast<const Part*>(m.values);
  const int out_row = m.out_rows != nullptr ? m.out_rows[row] : row;
  X* out = static_cast<X*>(m.out) + (static_cast<long>(out_row) * m.heads + head) * m.head_dim;
  const int packs = m.head_dim / kPack;
  const int lanes = min(packs, kMergeThreads);
  const int groups = kMergeThreads / lanes;
  const int group = thread / lanes;
  for (int first = 0; first < packs; first += lanes) {
    const int pack = first + thread % lanes;
    float sum[kPack + 1] = {};
    if (group < groups && pack < packs) {
#pragma unroll 4
      for (int part = begin + group; part < end; part += groups) {
        const float weight = part_weight<BaseTwo>(lse_at(part), most);
        const auto x =
            load_pack<Part, kPack>(values + (static_cast<long>(part) * m.heads + head) * m.head_dim + pack * kPack);
#pragma unroll
        for (int i = 0; i < kPack; ++i) sum[i] += weight * to_float(x.at[i]);
        sum[kPack] += weight;
      }
    }
#pragma unroll
    for (int i = 0; i <= kPack; ++i) sums[thread][i] = sum[i];
    __syncthreads();
    if (group == 0 && pack < packs) {
      for (int other = 1; other < groups; ++other)
#pragma unroll
        for (int i = 0; i <= kPack; ++i) sum[i] += sums[other * lanes + thread][i];
      Pack<X, kPack> y;
#pragma unroll
      for (int i = 0; i < kPack; ++i) y.at[i] = from_float<X>(sum[i] / sum[kPack]);
      store_pack(out + pack * kPack, y);
    }
    __syncthreads();
  }
}

// Loads the code of merge_states, because CUDA cannot load code while a stream records.
template <class Part, class X>
inline Status load_merge_states(int head_dim) {
  constexpr int kWide = kPackSize<Part>;
  const void* kernel = head_dim % kWide == 0 ? reinterpret_cast<const void*>(merge_states<Part, X, kWide>)
                                             : reinterpret_cast<const void*>(merge_states<Part, X, 1>);
  return allow_shared_memory(kernel, 0, "attention's merge");
}

template <class Part, class X>
inline void launch_merge_states(const MergeStates& m, cudaStream_t stream) {
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(m.heads), static_cast<unsigned>(m.rows)),
                          .block = dim3(kMergeThreads)};
  constexpr int kWide = kPackSize<Part>;
  if (m.head_dim % kWide == 0) {
    launch_early(merge_states<Part, X, kWide>, shape, stream, m);
  } else {
    launch_early(merge_states<Part, X, 1>, shape, stream, m);
  }
}

}  // namespace tessera::cuda
