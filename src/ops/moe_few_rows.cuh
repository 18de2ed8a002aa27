// moe_experts for the few tokens of a decode: every chosen expert's weights are read once.
//
// The floor is these bytes: of 3 · H · I for each expert that is chosen, whatever the number of its tokens. With 8
// experts of 2048 x 768 in bfloat16 these are 75 MB, 16 µs at 4.8 TB/s. A block takes 16 rows of an expert's matrix and
// all of k, an eighth to each warp, straight from global memory to the operands of tensor-core instructions, whose 16
// rows of x are the expert's tokens: one costs what sixteen do. No list is made before: there is a block for each pair
// (token, k) and tile, and it ends at once unless its pair is the first of its expert. Blocks that end at once are at
// most pairs - 1 of pairs, and each costs about what it takes to place it; therefore this serves kMostPairs at most.
#pragma once

#include "tessera/ops/moe_experts.cuh"
#include "tessera/ops/tensor_core.cuh"

namespace tessera::cuda::moe {

inline constexpr int kMostPairs = 128;
inline constexpr int kFewRows = 16;        // of x: a tensor-core instruction's
inline constexpr int kFewWeightRows = 16;  // of a block
inline constexpr int kFewStep = 32;        // columns of a warp at a time: 16 bytes to a thread

// The pairs of the expert of `pair`, in their order, to list; none where an earlier pair has the same expert, or where
// it is none. By all threads.
__device__ inline int pairs_of_expert(const std::int32_t* ids, int pairs, int pair, int experts, int* list,
                                      int* count) {
  const int expert = ids[pair];
  if (threadIdx.x < kWarp) {
    const int lane = static_cast<int>(threadIdx.x);
    int found = 0;
    bool is_first = expert >= 0 && expert < experts;
    for (int base = 0; base < pairs; base += kWarp) {
      const int i = base + lane;
      const bool same = i < pairs && ids[i] == expert;
      const unsigned all = __ballot_sync(0xffffffffu, same);
      if (same) list[found + __popc(all & ((1u << lane) - 1))] = i;
      found += __popc(all);
    }
    __syncwarp();
    is_first = is_first && list[0] == pair;
    if (lane == 0) *count = is_first ? found : 0;
  }
  __syncthreads();
  return *count;
}

// Grid: tiles of kFewWeightRows weight rows (8 of gate and 8 of up where kGateUp), pairs.
// x of down is y of gate and up: a row for each pair. Preconditions: k is a multiple of 8, pairs <= kMostPairs.
template <class T, bool kGateUp>
__global__ void __launch_bounds__(kThreads) few_rows(const Matmul<T> p, const std::int32_t* ids, int pairs) {
  __shared__ int list[kMostPairs];
  __shared__ int count;
  __shared__ __align__(16) float sums[kWarps][kFewRows][kFewWeightRows + 2];
  constexpr int kColumns = kGateUp ? kFewWeightRows / 2 : kFewWeightRows;  // of y
  let_next_begin();
  wait_for_previous();
  const int pair = static_cast<int>(blockIdx.y);
  const int found = pairs_of_expert(ids, pairs, pair, p.experts, list, &count);
  if (found == 0) return;

  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int row = lane / 4;
  const int first = static_cast<int>(blockIdx.x) * kColumns;
  const std::int64_t expert = ids[pair];
  const T* const w = p.w + expert * p.w_rows * p.k;
  const T* const bias = p.bias == nullptr ? nullptr : p.bias + expert * p.w_rows;
  // Rows past the last are read again and not stored.
  const T* of_half[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int column = first + (kGateUp ? row : half * 8 + row);
    const int w_row = min(column, p.n - 1) + (kGateUp ? half * p.n : 0);
    of_half[half] = w + static_cast<std::int64_t>(w_row) * p.k;
  }

  for (int begin = 0; begin < found; begin += kFewRows) {
    const int rows = min(kFewRows, found - begin);
    const T* of_row[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at = list[begin + min(half * 8 + row, rows - 1)];
      of_row[half] = p.x + static_cast<std::int64_t>(kGateUp ? at / p.top_k : at) * p.k;
    }
    const bool has_high = rows > 8;
    float sum[2][4] = {};
    // Threads of a quad take neighbouring 16 bytes of a row. Which of k's columns an instruction's operands name does
    // not matter, as long as both matrices have the same.
#pragma unroll 4
    for (int step = warp * kFewStep; step < p.k; step += kWarps * kFewStep) {
      const int c = step + lane % 4 * 8;
      const auto load = [&](const T* of, bool wanted) {
        return wanted && c < p.k ? *reinterpret_cast<const uint4*>(of + c) : make_uint4(0, 0, 0, 0);
      };
      const uint4 low = load(of_row[0], true);
      const uint4 high = load(of_row[1], has_high);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint4 weights = load(of_half[half], true);
        multiply_tile<T>(sum[half], {low.x, high.x, low.y, high.y}, weights.x, weights.y);
        multiply_tile<T>(sum[half], {low.z, high.z, low.w, high.w}, weights.z, weights.w);
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int high = 0; high < 2; ++high)
        *reinterpret_cast<float2*>(&sums[warp][high * 8 + row][half * 8 + lane % 4 * 2]) =
            make_float2(sum[half][2 * high], sum[half][2 * high + 1]);
    __syncthreads();

    const auto total = [&](int r, int column) {
      float t = 0;
#pragma unroll
      for (int part = 0; part < kWarps; ++part) t += sums[part][r][column];
      return t;
    };
    for (int i = static_cast<int>(threadIdx.x); i < rows * kColumns; i += kThreads) {
      const int r = i / kColumns;
      const int column = first + i % kColumns;
      if (column >= p.n) continue;
      float y = total(r, i % kColumns);
      if (bias != nullptr) y += to_float(bias[column]);
      if constexpr (kGateUp) {
        float up = total(r, kColumns + i % kColumns);
        if (bias != nullptr) up += to_float(bias[p.n + column]);
        y = activate<T>(y, up, p.activation, p.limit);
      }
      p.y[static_cast<std::int64_t>(list[begin + r]) * p.n + column] = from_float<T>(y);
    }
    __syncthreads();  // before the next rows' sums
  }
}

}  // namespace tessera::cuda::moe
