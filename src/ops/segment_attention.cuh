// Attention over ranges of rows on tensor cores, in bf16 and f16, for heads of up to kDim elements: those past the
// head's own are zeros in shared memory, so that heads of 72 cost what heads of 80 do.
//
// A block has 16 rows of one head for each of its warps, and goes over the keys that any of them sees, in tiles. Keys
// and values of the next tile are copied while a tile is computed. Scores stay in registers: what a warp has of them is
// what the product with the values takes. A warp leaves out tiles that none of its rows sees, and looks at single keys
// in those alone that some of its rows see a part of.
#pragma once

#include "tessera/ops/async_copy.cuh"
#include "tessera/ops/cuda_launch.cuh"
#include "tessera/ops/tensor_core.cuh"

namespace tessera::segments {

using cuda::kWarp;

inline constexpr int kKeys = 64;  // of a tile
inline constexpr int kWarpRows = 16;
inline constexpr int kStages = 2;
inline constexpr int kWarps = 4;
inline constexpr int kRows = kWarps * kWarpRows;  // of a block
inline constexpr int kThreads = kWarps * kWarp;
static_assert(kRows <= 2 * kKeys, "queries pass through the tiles of the last stage");

struct Problem {
  const void* qkv;             // X[rows, 3, heads, dim]
  const std::int32_t* ranges;  // [rows, 2]
  void* out;                   // X[rows, heads, dim]
  int rows;
  int heads;
  int dim;      // a multiple of 8 on tensor cores
  float scale;  // of scores, to powers of two
};

// Rows are 16 bytes longer than what they hold, so that eight rows at one column lie in different banks.
template <int kDim>
inline constexpr int kStride = kDim + 8;
template <int kDim>
inline constexpr int kTileElements = kKeys* kStride<kDim>;
template <int kDim>
inline constexpr std::size_t kSharedBytes = kStages * 2 * kTileElements<kDim> * 2;

struct Range {
  int begin;
  int end;
};

__device__ inline Range range_of(const Problem& p, int row) {
  if (row >= p.rows) return {0, 0};
  return {max(p.ranges[2 * row], 0), min(p.ranges[2 * row + 1], p.rows)};
}

// Rows [first, first + kTileRows) of queries, keys or values (`part` 0, 1, 2); zeros from `end` on.
template <class T, int kDim, int kTileRows>
__device__ inline void copy_tile(const Problem& p, int part, int head, int first, int end, T* tile) {
  constexpr int kPacks = kDim / 8;
  const int width = p.heads * p.dim;
  for (int i = static_cast<int>(threadIdx.x); i < kTileRows * kPacks; i += kThreads) {
    const int row = i / kPacks;
    const int column = i % kPacks * 8;
    const bool real = first + row < end && column < p.dim;
    const std::int64_t from = (static_cast<std::int64_t>(first + row) * 3 + part) * width + head * p.dim + column;
    cuda::copy_async(tile + row * kStride<kDim> + column, static_cast<const T*>(p.qkv) + (real ? from : 0), real);
  }
}

// A warp's 16 rows: lane l has rows l / 4 and l / 4 + 8.
template <int kDim>
struct Sums {
  float out[kDim / 8][4] = {};
  float greatest[2] = {-INFINITY, -INFINITY};
  float total[2] = {};  // over the keys of this lane
};

template <class T, int kDim>
__device__ inline void score_tile(const std::uint32_t (&q)[kDim / 16][4], const T* keys, float (&score)[kKeys / 8][4]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int n = 0; n < kKeys / 16; ++n) {
#pragma unroll
    for (int d = 0; d < kDim / 16; ++d) {
      std::uint32_t k[4];
      const int row = n * 16 + lane % 8 + lane / 16 * 8;
      cuda::load_matrices<false>(k, keys + row * kStride<kDim> + d * 16 + lane / 8 % 2 * 8);
      cuda::multiply_tile<T>(score[2 * n], q[d], k[0], k[1]);
      cuda::multiply_tile<T>(score[2 * n + 1], q[d], k[2], k[3]);
    }
  }
}

// Scores become weights; what was summed is made smaller where a row has a new greatest score.
template <int kDim>
__device__ inline void weigh_tile(float (&score)[kKeys / 8][4], Sums<kDim>& sums) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float most = sums.greatest[r];
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) most = fmaxf(most, fmaxf(score[n][2 * r], score[n][2 * r + 1]));
    most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
    most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
    const float base = most == -INFINITY ? 0.0f : most;  // a row that has seen no key yet
    const float shrink = exp2f(sums.greatest[r] - base);
    sums.greatest[r] = most;
    sums.total[r] *= shrink;
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      sums.out[n][2 * r] *= shrink;
      sums.out[n][2 * r + 1] *= shrink;
    }
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
      for (int i = 2 * r; i < 2 * r + 2; ++i) {
        score[n][i] = exp2f(score[n][i] - base);
        sums.total[r] += score[n][i];
      }
  }
}

template <class T, int kDim>
__device__ inline void add_values(const float (&weight)[kKeys / 8][4], const T* values, Sums<kDim>& sums) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int k = 0; k < kKeys / 16; ++k) {
    std::uint32_t w[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      w[i] = cuda::pack_two<T>(weight[2 * k + i / 2][i % 2 * 2], weight[2 * k + i / 2][i % 2 * 2 + 1]);
#pragma unroll
    for (int n = 0; n < kDim / 16; ++n) {
      std::uint32_t v[4];
      cuda::load_matrices<true>(v, values + (k * 16 + lane % 16) * kStride<kDim> + n * 16 + lane / 16 * 8);
      cuda::multiply_tile<T>(sums.out[2 * n], w, v[0], v[1]);
      cuda::multiply_tile<T>(sums.out[2 * n + 1], w, v[2], v[3]);
    }
  }
}

template <class T, int kDim>
__device__ inline void store_rows(const Problem& p, int head, int first_row, Sums<kDim>& sums) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = first_row + lane / 4 + 8 * r;
    const float total = cuda::warp_sum(sums.total[r], 4);
    const float inverse = total > 0 ? 1 / total : 0.0f;
    if (row >= p.rows) continue;
    T* const to = static_cast<T*>(p.out) + (static_cast<std::int64_t>(row) * p.heads + head) * p.dim;
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      const int column = n * 8 + lane % 4 * 2;
      if (column < p.dim)
        *reinterpret_cast<std::uint32_t*>(to + column) =
            cuda::pack_two<T>(sums.out[n][2 * r] * inverse, sums.out[n][2 * r + 1] * inverse);
    }
  }
}

// Grid [tiles of rows, heads].
template <class T, int kDim>
__global__ void __launch_bounds__(kThreads) segment_attention(const Problem p) {
  constexpr int kTile = kTileElements<kDim>;
  extern __shared__ __align__(128) unsigned char bytes[];
  T* const tiles = reinterpret_cast<T*>(bytes);  // [stage][keys, values]
  cuda::let_next_begin();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int head = static_cast<int>(blockIdx.y);
  const int block_row = static_cast<int>(blockIdx.x) * kRows;
  const int first_row = block_row + warp * kWarpRows;

  // Ranges are staged by copies: they may be read before the kernel ahead has ended.
  Range all{p.rows, 0};
#pragma unroll
  for (int i = 0; i < kRows / kWarp; ++i) {
    const Range range = range_of(p, block_row + i * kWarp + lane);
    if (range.begin >= range.end) continue;
    all = {min(all.begin, range.begin), max(all.end, range.end)};
  }
  all = {__reduce_min_sync(0xffffffffu, all.begin), __reduce_max_sync(0xffffffffu, all.end)};
  const Range mine[2] = {range_of(p, first_row + lane / 4), range_of(p, first_row + lane / 4 + 8)};
  const Range seen_by_some{__reduce_min_sync(0xffffffffu, min(mine[0].begin, mine[1].begin)),
                           __reduce_max_sync(0xffffffffu, max(mine[0].end, mine[1].end))};
  const Range seen_by_all{__reduce_max_sync(0xffffffffu, max(mine[0].begin, mine[1].begin)),
                          __reduce_min_sync(0xffffffffu, min(mine[0].end, mine[1].end))};

  cuda::wait_for_previous();
  T* const queries = tiles + (kStages - 1) * 2 * kTile;
  copy_tile<T, kDim, kRows>(p, 0, head, block_row, p.rows, queries);
  cuda::commit_copies();
  const auto copy_keys = [&](int first, int stage) {
    if (first < all.end) {
      T* const to = tiles + stage * 2 * kTile;
      copy_tile<T, kDim, kKeys>(p, 1, head, first, all.end, to);
      copy_tile<T, kDim, kKeys>(p, 2, head, first, all.end, to + kTile);
    }
    cuda::commit_copies();
  };
  copy_keys(all.begin, 0);
  cuda::wait_for_copies<1>();
  __syncthreads();
  std::uint32_t q[kDim / 16][4];
#pragma unroll
  for (int d = 0; d < kDim / 16; ++d)
    cuda::load_matrices<false>(q[d], queries + (warp * kWarpRows + lane % 16) * kStride<kDim> + d * 16 + lane / 16 * 8);
  __syncthreads();

  Sums<kDim> sums;
  int stage = 0;
  for (int first = all.begin; first < all.end; first += kKeys) {
    copy_keys(first + kKeys, stage ^ 1);
    cuda::wait_for_copies<1>();
    __syncthreads();
    if (first < seen_by_some.end && first + kKeys > seen_by_some.begin) {
      const T* const keys = tiles + stage * 2 * kTile;
      float score[kKeys / 8][4] = {};
      score_tile<T, kDim>(q, keys, score);
      const bool partial = first < seen_by_all.begin || first + kKeys > seen_by_all.end;
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int key = first + n * 8 + lane % 4 * 2 + i % 2;
          score[n][i] *= p.scale;
          if (partial && (key < mine[i / 2].begin || key >= mine[i / 2].end)) score[n][i] = -INFINITY;
        }
      weigh_tile<kDim>(score, sums);
      add_values<T, kDim>(score, keys + kTile, sums);
    }
    __syncthreads();
    stage ^= 1;
  }
  cuda::wait_for_copies<0>();
  store_rows<T, kDim>(p, head, first_row, sums);
}

}  // namespace tessera::segments
