// Computes moe_experts' matmuls without tensor cores. The kernels support float32, sizes that are not multiples of
// eight, float16 with MXFP4, and quantised matrices whose scales cover few columns. Packed and quantised weights become
// float32 here. The list of tiles is made as for moe_grouped.cuh. The time is bounded by products in float32, for which
// an H200 has 67 TFLOP/s. Plain tiles of 64 by 64 in shared memory reach about half of this speed.
#pragma once

#include "tessera/ops/moe/moe_mxfp4.cuh"
#include "tessera/ops/quantised/quantised_values.cuh"

namespace tessera::cuda::moe {

inline constexpr int kPlainRows = 64;        // rows of x in a tile
inline constexpr int kPlainWeightRows = 64;  // the weight rows in a tile; for gate and up, 32 of each
inline constexpr int kPlainDepth = 16;       // the columns of k that are multiplied at a time

// Returns the weight in column k of a row. `row` is the row's number among the rows of all experts.
template <class T>
__device__ inline float weight_at(const Matmul<T>& p, std::int64_t row, int k) {
  const std::int64_t at = row * p.k + k;
  if (p.w != nullptr) return to_float(p.w[at]);
  return p.packed != nullptr ? packed_weight(p, at) : quantised::element(p.matrix, row, k);
}

// Computes the matmul tile by tile. Thread t computes 4 x 4 sums of a tile: four rows of x, from row 4 · (t / 16) on,
// times the weight rows t % 16, t % 16 + 16, t % 16 + 32 and t % 16 + 48. For gate and up, the four weight rows belong
// to two columns of y, and each column has a sum for gate and a sum for up.
template <class T, bool kGateUp>
__global__ void __launch_bounds__(kThreads) plain(const Matmul<T> p, const Order order) {
  __shared__ float x[kPlainDepth][kPlainRows + 1];
  __shared__ float w[kPlainDepth][kPlainWeightRows + 1];
  constexpr int kColumns = kGateUp ? kPlainWeightRows / 2 : kPlainWeightRows;
  let_next_begin();
  wait_for_previous();
  const int thread = static_cast<int>(threadIdx.x);
  const int across = (p.n + kColumns - 1) / kColumns;
  const int tiles = *order.num_tiles * across;
  for (int t = static_cast<int>(blockIdx.x); t < tiles; t += static_cast<int>(gridDim.x)) {
    const Tile tile = order.tiles[t / across];
    const int column = t % across * kColumns;
    const std::int64_t weights = static_cast<std::int64_t>(tile.expert) * p.w_rows;
    float sum[4][4] = {};
    for (int depth = 0; depth < p.k; depth += kPlainDepth) {
      for (int i = thread; i < kPlainRows * kPlainDepth; i += kThreads) {
        const int r = i / kPlainDepth;
        const int d = i % kPlainDepth;
        float value = 0;
        if (r < tile.rows && depth + d < p.k) {
          const int at = tile.first + r;
          value = to_float(p.x[static_cast<std::int64_t>(kGateUp ? order.row[at] : at) * p.k + depth + d]);
        }
        x[d][r] = value;
      }
      for (int i = thread; i < kPlainWeightRows * kPlainDepth; i += kThreads) {
        const int r = i / kPlainDepth;
        const int d = i % kPlainDepth;
        const int c = column + r % kColumns;
        float value = 0;
        if (c < p.n && depth + d < p.k) value = weight_at(p, weights + r / kColumns * p.n + c, depth + d);
        w[d][r] = value;
      }
      __syncthreads();
#pragma unroll
      for (int d = 0; d < kPlainDepth; ++d) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
          for (int j = 0; j < 4; ++j) sum[i][j] += x[d][thread / 16 * 4 + i] * w[d][thread % 16 + 16 * j];
      }
      __syncthreads();
    }

    const T* const bias = p.bias == nullptr ? nullptr : p.bias + static_cast<std::int64_t>(tile.expert) * p.w_rows;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = thread / 16 * 4 + i;
      if (row >= tile.rows) continue;
#pragma unroll
      for (int j = 0; j < (kGateUp ? 2 : 4); ++j) {
        const int c = column + thread % 16 + 16 * j;
        if (c >= p.n) continue;
        float value = sum[i][j];
        if (bias != nullptr) value += to_float(bias[c]);
        if constexpr (kGateUp) {
          float up = sum[i][j + 2];
          if (bias != nullptr) up += to_float(bias[p.n + c]);
          value = activate<T>(value, up, p.activation, p.limit);
        }
        p.y[static_cast<std::int64_t>(tile.first + row) * p.n + c] = from_float<T>(value);
      }
    }
  }
}

}  // namespace tessera::cuda::moe
