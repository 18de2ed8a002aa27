// Computes attention over ranges of rows on tensor cores, in bf16 and f16, for heads of up to kDim elements. In shared
// memory heads are padded with zeros to a multiple of 16 elements, so a head of 72 elements costs as much as a head of
// 80.
//
// A block computes some rows of one head. Tile by tile, it goes over the keys that at least one of these rows sees.
// Keys and values of the next tile are copied while a tile is computed. Scores stay in registers, because the
// accumulator layout of a warp's scores is also the layout of the A operand in the product with the values. A warp
// skips keys that none of its rows sees, and masks single keys only where its rows see different parts of a tile. Warps
// that share rows have different keys of each tile, and their sums are added at the end, in a fixed order.
//
// Tiles begin at multiples of their size. So the order of a row's sums depends on the row's own range, but not on the
// ranges of the rows beside it.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "tessera/ops/cuda/async_copy.cuh"
#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/cuda/online_softmax.cuh"
#include "tessera/ops/cuda/tensor_core.cuh"

namespace tessera::segments {

using cuda::kWarp;

inline constexpr int kWarpRows = 16;
inline constexpr int kStages = 2;

// The shape of a block with kRowWarps · kKeyWarps warps. Each warp computes 16 of the block's rows with kWarpKeys of
// the keys of each tile.
template <int kRowWarps_, int kKeyWarps_, int kWarpKeys_>
struct Shape {
  static constexpr int kRowWarps = kRowWarps_;
  static constexpr int kKeyWarps = kKeyWarps_;
  static constexpr int kWarpKeys = kWarpKeys_;
  static constexpr int kRows = kRowWarps * kWarpRows;
  static constexpr int kKeys = kKeyWarps * kWarpKeys;
  static constexpr int kThreads = kRowWarps * kKeyWarps * kWarp;
};
// Shapes for different grid sizes. Rows32 is used if its grid has at most one block for each multiprocessor, because
// blocks with fewer rows end sooner. Otherwise Rows64 is used if all blocks of its grid can run at once, at most two on
// a multiprocessor. Two blocks on one multiprocessor hide each other's waits. Larger grids use ManyBlocks. It has the
// least work, because its warps share no rows.
using Rows32 = Shape<2, 2, 64>;
using Rows64 = Shape<4, 2, 32>;
using ManyBlocks = Shape<4, 1, 64>;

struct Problem {
  const void* qkv;             // X[rows, 3, heads, dim]
  const std::int32_t* ranges;  // [rows, 2]
  void* out;                   // X[rows, heads, dim]
  int rows;
  int heads;
  int dim;      // a multiple of 8 on tensor cores
  float scale;  // factor that turns q·k into an exponent of two
};

// The distance between two rows in shared memory, in elements. Rows are padded by 16 bytes, so that reading eight rows
// at one column causes no bank conflict.
template <int kDim>
inline constexpr int kStride = kDim + 8;
// The size of shared memory. It holds the queries, and then the keys and values of each stage.
template <class S, int kDim>
inline constexpr std::size_t kSharedBytes = (S::kRows + kStages * 2 * S::kKeys) * kStride<kDim> * 2;

struct Range {
  int begin;
  int end;
};

__device__ inline Range range_of(const Problem& p, int row) {
  if (row >= p.rows) return {0, 0};
  return {max(p.ranges[2 * row], 0), min(p.ranges[2 * row + 1], p.rows)};
}

// The order in which a block's threads go over rows of kPacks packs. Each warp processes kAtOnce rows at once, one pack
// in each lane. Then the block moves on by kStep rows, and each lane stays at its column of packs. The last lanes of a
// warp may have no pack (`used` is then false).
template <class S, int kPacks>
struct Walk {
  static constexpr int kAtOnce = kWarp / kPacks;
  static constexpr int kStep = S::kThreads / kWarp * kAtOnce;
  int pack = static_cast<int>(threadIdx.x) % kWarp % kPacks;
  int row = static_cast<int>(threadIdx.x) / kWarp * kAtOnce + static_cast<int>(threadIdx.x) % kWarp / kPacks;
  bool used = static_cast<int>(threadIdx.x) % kWarp < kAtOnce * kPacks;
};

// Copies the rows [first, first + kRows) of kParts parts of qkv, beginning with part number `part`. Part 0 has the
// head's queries, part 1 its keys, and part 2 its values. Rows outside of `real` become zeros.
template <class T, class S, int kDim, int kRows, int kParts>
__device__ inline void copy_rows(const Problem& p, int part, int head, int first, Range real, T* to) {
  const Walk<S, kDim / 8> walk;
  if (!walk.used) return;
  const int column = walk.pack * 8;
  const std::int64_t width = static_cast<std::int64_t>(p.heads) * p.dim;
  const T* from =
      static_cast<const T*>(p.qkv) + ((first + walk.row) * std::int64_t{3} + part) * width + head * p.dim + column;
  to += walk.row * kStride<kDim> + column;
#pragma unroll 1
  for (int row = walk.row; row < kRows; row += walk.kStep) {
    const bool in = first + row >= real.begin && first + row < real.end && column < p.dim;
#pragma unroll
    for (int i = 0; i < kParts; ++i) cuda::copy_async(to + i * kRows * kStride<kDim>, from + i * width, in);
    from += walk.kStep * 3 * width;
    to += walk.kStep * kStride<kDim>;
  }
}

// The sums of a warp's 16 rows. Lane l has sums of rows l / 4 and l / 4 + 8.
template <int kDim>
struct Sums {
  float out[kDim / 8][4] = {};
  // The running max of the unscaled scores of the warp's keys, and the sum of weights over this lane's keys.
  cuda::OnlineSoftmax<cuda::FastBaseTwo> rows[2];
};

template <class T, class S, int kDim>
__device__ inline void score_keys(const std::uint32_t (&q)[kDim / 16][4], const T* keys,
                                  float (&score)[S::kWarpKeys / 8][4]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int d = 0; d < kDim / 16; ++d) {
#pragma unroll
    for (int n = 0; n < S::kWarpKeys / 16; ++n) {
      std::uint32_t k[4];
      const int row = n * 16 + lane % 8 + lane / 16 * 8;
      cuda::load_matrices<false>(k, keys + row * kStride<kDim> + d * 16 + lane / 8 % 2 * 8);
      cuda::multiply_tile<T>(score[2 * n], q[d], k[0], k[1]);
      cuda::multiply_tile<T>(score[2 * n + 1], q[d], k[2], k[3]);
    }
  }
}

// Masks each key that a row does not see, among the keys from `first` on.
template <int kFragments>
__device__ inline void leave_out_keys(float (&score)[kFragments][4], int first, const Range (&seen)[2]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int n = 0; n < kFragments; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = first + n * 8 + lane % 4 * 2 + i % 2;
      if (key < seen[i / 2].begin || key >= seen[i / 2].end) score[n][i] = -INFINITY;
    }
}

// Turns scores into weights, and rescales the sums of a row whose running max has grown.
template <int kDim, int kFragments>
__device__ inline void weigh_keys(float (&score)[kFragments][4], float scale, Sums<kDim>& sums) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float most = sums.rows[r].running_max;
#pragma unroll
    for (int n = 0; n < kFragments; ++n) most = fmaxf(most, fmaxf(score[n][2 * r], score[n][2 * r + 1]));
    most = cuda::quad_max(most);
    const float base = most == -INFINITY ? 0.0f : most;  // -INFINITY: the row has seen no key yet
    const float shrink = sums.rows[r].template raise<cuda::Keys::kMaybeNone>(most, scale);
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      sums.out[n][2 * r] *= shrink;
      sums.out[n][2 * r + 1] *= shrink;
    }
#pragma unroll
    for (int n = 0; n < kFragments; ++n)
#pragma unroll
      for (int i = 2 * r; i < 2 * r + 2; ++i) {
        score[n][i] = cuda::FastBaseTwo::power(fmaf(score[n][i], scale, -base * scale));
        sums.rows[r].sum += score[n][i];
      }
  }
}

template <class T, class S, int kDim>
__device__ inline void add_values(const float (&weight)[S::kWarpKeys / 8][4], const T* values, Sums<kDim>& sums) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int k = 0; k < S::kWarpKeys / 16; ++k) {
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

// Writes the rows of a warp that has processed all keys of these rows.
template <class T, int kDim>
__device__ inline void store_rows(const Problem& p, int head, int first_row, const Sums<kDim>& sums) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = first_row + lane / 4 + 8 * r;
    const float total = cuda::warp_sum(sums.rows[r].sum, 4);
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

// The partial softmax results, in shared memory, of warps that compute the same rows over different keys: maximum,
// total and weighted sum of values.
template <class S, int kDim>
struct SharedSums {
  float running_max[S::kKeyWarps][S::kRows];
  float total[S::kKeyWarps][S::kRows];
  float out[S::kKeyWarps][S::kRows][kStride<kDim>];
};

template <class S, int kDim>
__device__ inline void share_sums(const Sums<kDim>& sums, int key_warp, int first_row, SharedSums<S, kDim>& shared) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = first_row + lane / 4 + 8 * r;
    const float total = cuda::warp_sum(sums.rows[r].sum, 4);
    if (lane % 4 == 0) {
      shared.running_max[key_warp][row] = sums.rows[r].running_max;
      shared.total[key_warp][row] = total;
    }
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n)
      *reinterpret_cast<float2*>(&shared.out[key_warp][row][n * 8 + lane % 4 * 2]) =
          make_float2(sums.out[n][2 * r], sums.out[n][2 * r + 1]);
  }
}

// Merges the partial results of the warps and writes all rows of the block, a pack at a time.
template <class T, class S, int kDim>
__device__ inline void store_shared_rows(const Problem& p, int head, int block_row, const SharedSums<S, kDim>& shared) {
  const Walk<S, kDim / 8> walk;
  const int column = walk.pack * 8;
  if (!walk.used || column >= p.dim) return;
#pragma unroll 1
  for (int row = walk.row; row < S::kRows && block_row + row < p.rows; row += walk.kStep) {
    float most = shared.running_max[0][row];
#pragma unroll
    for (int k = 1; k < S::kKeyWarps; ++k) most = fmaxf(most, shared.running_max[k][row]);
    const float base = most == -INFINITY ? 0.0f : most;  // -INFINITY: the range is empty
    float total = 0;
    float sum[8] = {};
#pragma unroll
    for (int k = 0; k < S::kKeyWarps; ++k) {
      const float share = cuda::FastBaseTwo::power((shared.running_max[k][row] - base) * p.scale);
      total = fmaf(share, shared.total[k][row], total);
      const auto* out = reinterpret_cast<const float4*>(&shared.out[k][row][column]);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        sum[4 * half] = fmaf(share, out[half].x, sum[4 * half]);
        sum[4 * half + 1] = fmaf(share, out[half].y, sum[4 * half + 1]);
        sum[4 * half + 2] = fmaf(share, out[half].z, sum[4 * half + 2]);
        sum[4 * half + 3] = fmaf(share, out[half].w, sum[4 * half + 3]);
      }
    }
    const float inverse = total > 0 ? 1 / total : 0.0f;
    const std::int64_t to = (static_cast<std::int64_t>(block_row + row) * p.heads + head) * p.dim + column;
    *reinterpret_cast<uint4*>(static_cast<T*>(p.out) + to) = make_uint4(
        cuda::pack_two<T>(sum[0] * inverse, sum[1] * inverse), cuda::pack_two<T>(sum[2] * inverse, sum[3] * inverse),
        cuda::pack_two<T>(sum[4] * inverse, sum[5] * inverse), cuda::pack_two<T>(sum[6] * inverse, sum[7] * inverse));
  }
}

// Computes attention for a block of rows of one head. gridDim.x counts blocks of rows, and gridDim.y counts heads.
template <class T, class S, int kDim>
__global__ void __launch_bounds__(S::kThreads) segment_attention(const Problem p) {
  constexpr int kTile = S::kKeys * kStride<kDim>;
  extern __shared__ __align__(128) unsigned char bytes[];
  T* const queries = reinterpret_cast<T*>(bytes);
  T* const tiles = queries + S::kRows * kStride<kDim>;  // [stage][keys, values]
  cuda::let_next_begin();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int row_warp = static_cast<int>(threadIdx.x) / kWarp % S::kRowWarps;
  const int key_warp = static_cast<int>(threadIdx.x) / kWarp / S::kRowWarps;
  const int head = static_cast<int>(blockIdx.y);
  const int block_row = static_cast<int>(blockIdx.x) * S::kRows;
  const int warp_row = row_warp * kWarpRows;  // the warp's first row within the block

  // The ranges are written by a copy, not by a kernel, so they may be read before the preceding kernel has ended.
  Range all{p.rows, 0};
#pragma unroll
  for (int i = 0; i < S::kRows / kWarp; ++i) {
    const Range range = range_of(p, block_row + i * kWarp + lane);
    if (range.begin >= range.end) continue;
    all = {min(all.begin, range.begin), max(all.end, range.end)};
  }
  all = {__reduce_min_sync(0xffffffffu, all.begin), __reduce_max_sync(0xffffffffu, all.end)};
  Range mine[2];
  Range some{p.rows, 0};   // keys that some row of the warp sees
  Range every{0, p.rows};  // keys that all rows of the warp see
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    mine[r] = range_of(p, block_row + warp_row + lane / 4 + 8 * r);
    if (mine[r].begin < mine[r].end) some = {min(some.begin, mine[r].begin), max(some.end, mine[r].end)};
    every = {max(every.begin, mine[r].begin), min(every.end, mine[r].end)};
  }
  some = {__reduce_min_sync(0xffffffffu, some.begin), __reduce_max_sync(0xffffffffu, some.end)};
  every = {__reduce_max_sync(0xffffffffu, every.begin), __reduce_min_sync(0xffffffffu, every.end)};

  cuda::wait_for_previous();
  copy_rows<T, S, kDim, S::kRows, 1>(p, 0, head, block_row, {0, p.rows}, queries);
  const auto copy_keys = [&](int first, int stage) {
    if (first < all.end) copy_rows<T, S, kDim, S::kKeys, 2>(p, 1, head, first, all, tiles + stage * 2 * kTile);
    cuda::commit_copies();
  };
  const int begin = all.begin / S::kKeys * S::kKeys;
#pragma unroll
  for (int stage = 0; stage < kStages; ++stage) copy_keys(begin + stage * S::kKeys, stage);
  cuda::wait_for_copies<kStages - 1>();
  __syncthreads();
  std::uint32_t q[kDim / 16][4];
#pragma unroll
  for (int d = 0; d < kDim / 16; ++d)
    cuda::load_matrices<false>(q[d], queries + (warp_row + lane % 16) * kStride<kDim> + d * 16 + lane / 16 * 8);

  Sums<kDim> sums;
  int stage = 0;
  for (int tile = begin; tile < all.end; tile += S::kKeys) {
    cuda::wait_for_copies<kStages - 1>();
    __syncthreads();
    const int first = tile + key_warp * S::kWarpKeys;
    if (first < some.end && first + S::kWarpKeys > some.begin) {
      const T* const keys = tiles + stage * 2 * kTile + key_warp * S::kWarpKeys * kStride<kDim>;
      float score[S::kWarpKeys / 8][4] = {};
      score_keys<T, S, kDim>(q, keys, score);
      if (first < every.begin || first + S::kWarpKeys > every.end) leave_out_keys(score, first, mine);
      weigh_keys<kDim>(score, p.scale, sums);
      add_values<T, S, kDim>(score, keys + kTile, sums);
    }
    __syncthreads();
    copy_keys(tile + kStages * S::kKeys, stage);
    stage = (stage + 1) % kStages;
  }
  cuda::wait_for_copies<0>();

  if constexpr (S::kKeyWarps == 1) {
    store_rows<T, kDim>(p, head, block_row + warp_row, sums);
  } else {
    static_assert(sizeof(SharedSums<S, kDim>) <= kSharedBytes<S, kDim>);
    // The sums overwrite the queries and tiles. If the block has processed a tile, this is safe, because all warps have
    // passed the tile's last barrier. Otherwise a warp may load overwritten queries, but it does not use them.
    auto& shared = *reinterpret_cast<SharedSums<S, kDim>*>(bytes);
    share_sums<S, kDim>(sums, key_warp, warp_row, shared);
    __syncthreads();
    store_shared_rows<T, S, kDim>(p, head, block_row, shared);
  }
}

}  // namespace tessera::segments
