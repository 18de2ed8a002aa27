// The device code of latent attention on CUDA. A block processes a tile of rows of one request and one range of the
// request's keys. A row is one query head of one token. The block reads each key's cache row once for all rows of the
// tile.
//
// Tensor cores compute the published sizes (a latent of 512 elements beside 64 rotated elements) in bfloat16 and
// float16. A tile has 16 · kRowGroups rows. The eight warps form kRowGroups groups, and each group has 16 of these
// rows. To compute scores, the warps of a group divide the keys among them. To add values, they divide the latent's
// columns.
#pragma once

#include "tessera/ops/attention/own_attention.cuh"
#include "tessera/ops/cuda/async_copy.cuh"
#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/cuda/online_softmax.cuh"
#include "tessera/ops/cuda/tensor_core.cuh"
#include "tessera/ops/latent/latent_forms.cuh"

namespace tessera::latent {

using cuda::from_float;
using cuda::Pack;
using cuda::to_float;
using own_attention::find_rows;
using own_attention::Problem;  // kv_heads = 1, head_dim = the width of a row, group = heads
using own_attention::Rows;

inline constexpr int kLatent = 512;
inline constexpr int kRotated = 64;
inline constexpr int kWidth = kLatent + kRotated;
inline constexpr int kKeys = 64;  // keys in a tile
inline constexpr int kWarps = 8;
inline constexpr int kMostSplits = 64;  // maximum number of ranges of a row's keys
inline constexpr int kPack = 8;         // elements in 16 bytes
inline constexpr int kPacks = kWidth / kPack;

// The place where a row's sums are stored: the output, or, if there are several ranges of keys, this range's partial
// result.
struct Target {
  std::int64_t at;  // index of the row (one head of a token) in out or partial_values
  bool partial;
};
__device__ inline Target target_of(const Problem& p, const Rows& rows, int row, int split) {
  const std::int64_t token = rows.query_start + (rows.row_begin + row) / p.heads;
  const int head = (rows.row_begin + row) % p.heads;
  const bool partial = p.splits > 1;
  return {(partial ? token * p.splits + split : token) * p.heads + head, partial};
}

// The keys [begin, end) of a block. The keys that any row of the block sees are cut into p.splits ranges of whole
// tiles, and a block has one of these ranges.
struct Keys {
  int begin;
  int end;
};
__device__ inline Keys keys_of(const Problem& p, const Rows& rows, int split, int tile_keys) {
  const int seen = rows.offset + (rows.row_begin + rows.rows - 1) / p.heads + 1;
  const int range = own_attention::ceil_div(own_attention::ceil_div(seen, p.splits), tile_keys) * tile_keys;
  return {min(split * range, seen), min((split + 1) * range, seen)};
}

// A tile of cache rows or of queries. A query has the length of a cache row.
template <class T, int kRows>
using Tile = cuda::PermutedRows<T, kRows, kPacks>;

template <class T, int kRowGroups, int kStages>
struct Shared {
  static constexpr int kRows = 16 * kRowGroups;
  static constexpr int kGroupWarps = kWarps / kRowGroups;
  static constexpr int kWeightStride = kKeys + kPack;  // neighbouring rows start in different banks

  Tile<T, kRows> q;
  Tile<T, kKeys> keys[kStages];
  T weights[kRows * kWeightStride];
  float running_max[kGroupWarps][kRows];
  float sums[kGroupWarps][kRows];
};

template <class T, int kRows>
__device__ inline void load_queries(const Problem& p, const Rows& rows, Tile<T, kRows>& tile) {
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kPacks; i += kWarps * kWarp) {
    const int row = i / kPacks;
    const bool real = row < rows.rows;
    // Rows of a request follow each other in memory: all heads of a token, then the next token's.
    const std::int64_t at = static_cast<std::int64_t>(rows.query_start) * p.heads + rows.row_begin + row;
    cuda::copy_async(tile.pack(row, i % kPacks),
                     static_cast<const T*>(p.q) + (real ? at * kWidth + i % kPacks * kPack : 0), real);
  }
}

// Loads the cache's rows for the tile of keys that begins at position `first`. Loads only the positions [begin, end),
// so that several calls can load one tile together. Rows from position `last` on become zeros, so that a zero weight
// never multiplies a NaN.
template <class T>
__device__ inline void load_keys(const Problem& p, const int* pages, int first, int begin, int end, int last,
                                 Tile<T, kKeys>& tile) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
#pragma unroll
  for (int i = 0; i < kKeys / kWarps; ++i) {
    const int row = i * kWarps + warp;
    const int key = first + row;
    if (key < begin || (key >= end && key < last)) continue;
    const bool real = key < last;
    const std::int64_t slot =
        real ? static_cast<std::int64_t>(pages[key / p.page_size]) * p.page_size + key % p.page_size : 0;
    const T* from = static_cast<const T*>(p.k_cache) + slot * kWidth;
    for (int pack = lane; pack < kPacks; pack += kWarp)
      cuda::copy_async(tile.pack(row, pack), from + pack * kPack, real);
  }
}

// A lane's sums for its warp's 16 rows of a tile. The lane has the sums of the rows lane / 4 and lane / 4 + 8.
template <int kRowGroups>
struct Sums {
  static constexpr int kGroupWarps = kWarps / kRowGroups;
  static constexpr int kWarpKeys = kKeys / kGroupWarps;       // keys for which the warp computes scores
  static constexpr int kWarpColumns = kLatent / kGroupWarps;  // columns for which the warp adds values
  float out[kWarpColumns / 8][4] = {};
  cuda::OnlineSoftmax<cuda::BaseTwo> rows[2];  // running max over all keys so far, and sum over this lane's keys
};

// Computes q·k for the warp's rows and keys.
template <class T, int kRowGroups, int kStages>
__device__ inline void multiply_keys(Shared<T, kRowGroups, kStages>& shared, int stage, int first_row, int first_key,
                                     float (&score)[Sums<kRowGroups>::kWarpKeys / 8][4]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  // The sums of every second step of the loop over d. Successive products add to different sets of sums, so a product
  // need not wait for the product before it.
  float second[Sums<kRowGroups>::kWarpKeys / 8][4] = {};
#pragma unroll 3
  for (int d = 0; d < kWidth / 32; ++d) {
    std::uint32_t a[2][4];
    cuda::load_matrices<false>(a[0], shared.q.pack(first_row + lane % 16, d * 4 + lane / 16));
    cuda::load_matrices<false>(a[1], shared.q.pack(first_row + lane % 16, d * 4 + 2 + lane / 16));
#pragma unroll
    for (int n = 0; n < Sums<kRowGroups>::kWarpKeys / 8; ++n) {
      std::uint32_t b[4];
      cuda::load_matrices<false>(b, shared.keys[stage].pack(first_key + n * 8 + lane % 8, d * 4 + lane / 8));
      cuda::multiply_tile<T>(score[n], a[0], b[0], b[1]);
      cuda::multiply_tile<T>(second[n], a[1], b[2], b[3]);
    }
  }
#pragma unroll
  for (int n = 0; n < Sums<kRowGroups>::kWarpKeys / 8; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) score[n][i] += second[n][i];
}

// Adds weights · values of the tile's keys to the warp's columns.
template <class T, int kRowGroups, int kStages>
__device__ inline void add_values(Shared<T, kRowGroups, kStages>& shared, int stage, int first_row, int first_column,
                                  Sums<kRowGroups>& sums) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  constexpr int kStride = Shared<T, kRowGroups, kStages>::kWeightStride;
#pragma unroll
  for (int k = 0; k < kKeys / 16; ++k) {
    std::uint32_t a[4];
    cuda::load_matrices<false>(a, shared.weights + (first_row + lane % 16) * kStride + k * 16 + lane / 16 * kPack);
#pragma unroll
    for (int n = 0; n < Sums<kRowGroups>::kWarpColumns / 16; ++n) {
      std::uint32_t v[4];
      cuda::load_matrices<true>(v,
                                shared.keys[stage].pack(k * 16 + lane % 16, first_column / kPack + n * 2 + lane / 16));
      cuda::multiply_tile<T>(sums.out[2 * n], a, v[0], v[1]);
      cuda::multiply_tile<T>(sums.out[2 * n + 1], a, v[2], v[3]);
    }
  }
}

// Runs the absorbed form. gridDim.x counts tiles, and gridDim.z counts ranges of keys. Blocks past the last tile do
// nothing. Requests in the direct form are skipped.
template <class T, int kRowGroups, int kStages>
__global__ void __launch_bounds__(kWarps* kWarp) latent_tiles(const Problem p, const LatentForms forms) {
  using S = Shared<T, kRowGroups, kStages>;
  using Part = Sums<kRowGroups>;
  extern __shared__ __align__(128) unsigned char shared_bytes[];
  auto& shared = *reinterpret_cast<S*>(shared_bytes);
  cuda::let_next_begin();
  // Lengths and page tables were uploaded by copies on the stream, not by kernels, and the older rows of the cache were
  // written by earlier forwards. No kernel that may still run changes them, so they may be read before
  // wait_for_previous().
  Rows rows;
  if (!find_rows(p, static_cast<int>(blockIdx.x), S::kRows, rows) || direct_place(forms, rows.request) >= 0)
    return cuda::wait_for_previous();
  const int split = static_cast<int>(blockIdx.z);
  const Keys keys = keys_of(p, rows, split, kKeys);
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarp;
  const int group = thread / kWarp / S::kGroupWarps;     // the warp's group of rows
  const int in_group = thread / kWarp % S::kGroupWarps;  // the warp's index in its group
  const int quad = lane / 4;
  const int first_row = group * 16;
  if (keys.begin == keys.end) {
    cuda::wait_for_previous();
    for (int row = thread; row < rows.rows; row += kWarps * kWarp)
      p.partial_lse[target_of(p, rows, row, split).at] = -INFINITY;
    return;
  }

  const int* pages = p.page_table + static_cast<std::int64_t>(rows.request) * p.max_pages;
  const int tiles = own_attention::ceil_div(keys.end - keys.begin, kKeys);
  const auto load_part = [&](int tile, int begin, int end) {
    if (tile < tiles)
      load_keys<T>(p, pages, keys.begin + tile * kKeys, begin, end, keys.end, shared.keys[tile % kStages]);
  };
  const auto load = [&](int tile) {
    load_part(tile, 0, keys.end);
    cuda::commit_copies();
  };
  for (int tile = 0; tile < kStages; ++tile) load_part(tile, 0, min(rows.offset, keys.end));
  cuda::wait_for_previous();
  load_queries<T, S::kRows>(p, rows, shared.q);
  for (int tile = 0; tile < kStages; ++tile) {
    load_part(tile, min(rows.offset, keys.end), keys.end);
    cuda::commit_copies();
  }
  const float scale_log2 = p.scale * 1.44269504088896f;
  const auto position = [&](int r) { return rows.offset + (rows.row_begin + first_row + quad + 8 * r) / p.heads; };

  Part sums;
  for (int tile = 0; tile < tiles; ++tile) {
    cuda::wait_for_copies<kStages - 1>();
    __syncthreads();
    const int stage = tile % kStages;
    float score[Part::kWarpKeys / 8][4] = {};
    multiply_keys(shared, stage, first_row, in_group * Part::kWarpKeys, score);
    float most[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (int n = 0; n < Part::kWarpKeys / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = keys.begin + tile * kKeys + in_group * Part::kWarpKeys + n * 8 + lane % 4 * 2 + i % 2;
        score[n][i] = key < keys.end && key <= position(i / 2) ? score[n][i] * scale_log2 : -INFINITY;
        most[i / 2] = fmaxf(most[i / 2], score[n][i]);
      }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      most[r] = cuda::quad_max(most[r]);
      if (lane % 4 == 0) shared.running_max[in_group][first_row + quad + 8 * r] = most[r];
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = first_row + quad + 8 * r;
      float now = sums.rows[r].running_max;
      for (int w = 0; w < S::kGroupWarps; ++w) now = fmaxf(now, shared.running_max[w][row]);
      const float shrink = sums.rows[r].template raise<cuda::Keys::kMaybeNone>(now);
#pragma unroll
      for (int n = 0; n < Part::kWarpColumns / 8; ++n) {
        sums.out[n][2 * r] *= shrink;
        sums.out[n][2 * r + 1] *= shrink;
      }
#pragma unroll
      for (int n = 0; n < Part::kWarpKeys / 8; ++n) {
        float weight[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          weight[i] = sums.rows[r].template weight<cuda::Keys::kMaybeNone>(score[n][2 * r + i]);
          sums.rows[r].sum += weight[i];
        }
        const int key = in_group * Part::kWarpKeys + n * 8 + lane % 4 * 2;
        *reinterpret_cast<std::uint32_t*>(shared.weights + row * S::kWeightStride + key) =
            cuda::pack_two<T>(weight[0], weight[1]);
      }
    }
    __syncthreads();
    add_values(shared, stage, first_row, in_group * Part::kWarpColumns, sums);
    __syncthreads();
    load(tile + kStages);
  }
  cuda::wait_for_copies<0>();

#pragma unroll
  for (int r = 0; r < 2; ++r) {
    sums.rows[r].sum += __shfl_xor_sync(0xffffffffu, sums.rows[r].sum, 1);
    sums.rows[r].sum += __shfl_xor_sync(0xffffffffu, sums.rows[r].sum, 2);
    if (lane % 4 == 0) shared.sums[in_group][first_row + quad + 8 * r] = sums.rows[r].sum;
  }
  __syncthreads();
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = first_row + quad + 8 * r;
    if (row >= rows.rows) continue;
    float total = 0;
    for (int w = 0; w < S::kGroupWarps; ++w) total += shared.sums[w][row];
    const Target target = target_of(p, rows, row, split);
    // A row may see no key of this range. Then all weights of the row are zero.
    const float inverse = total > 0 ? 1.0f / total : 0.0f;
    if (target.partial && in_group == 0 && lane % 4 == 0)
      p.partial_lse[target.at] = total > 0 ? log2f(total) + sums.rows[r].running_max : -INFINITY;
#pragma unroll
    for (int n = 0; n < Part::kWarpColumns / 8; ++n) {
      const float low = sums.out[n][2 * r] * inverse;
      const float high = sums.out[n][2 * r + 1] * inverse;
      const std::int64_t at = target.at * kLatent + in_group * Part::kWarpColumns + n * 8 + lane % 4 * 2;
      if (target.partial)
        *reinterpret_cast<float2*>(p.partial_values + at) = make_float2(low, high);
      else
        *reinterpret_cast<std::uint32_t*>(static_cast<T*>(p.out) + at) = cuda::pack_two<T>(low, high);
    }
  }
}

}  // namespace tessera::latent
