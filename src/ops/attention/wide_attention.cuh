// Our own attention kernel for heads of 512 elements in bf16 and f16, on tensor cores, with windows, soft caps and
// sinks. It replaces the float32 kernel of attention.cu. It has the same arguments (Problem) and writes partial results
// of the same form.
//
// Eight warps compute 32 query rows: four warps for each group of 16 rows. Keys are processed in tiles. Each of the
// four warps computes the scores of a quarter of a tile's keys. It then adds the weighted values of all keys of the
// tile, for a quarter of the head's elements. Keys and values have one buffer each: the values of a tile are loaded
// while its scores are computed, and the keys of the next tile are loaded while the values are added. On Hopper two
// blocks fit on a multiprocessor.
//
// A row's sums do not depend on other rows, and a key that the row does not see adds an exact zero. So deterministic
// forwards may use this kernel, like the float32 kernel.
#pragma once

#include "tessera/ops/attention/own_attention.cuh"
#include "tessera/ops/cuda/async_copy.cuh"
#include "tessera/ops/cuda/online_softmax.cuh"
#include "tessera/ops/cuda/tensor_core.cuh"

namespace tessera::own_attention {

inline constexpr int kWideDim = 512;
inline constexpr int kWideRows = 32;
inline constexpr int kWideKeys = 32;
inline constexpr int kWideWarps = 8;
inline constexpr int kWideGroupWarps = 4;                        // number of warps that share a group of rows
inline constexpr int kWideColumns = kWideDim / kWideGroupWarps;  // number of columns of `out` for one warp
inline constexpr int kWidePacks = kWideDim / 8;                  // number of 16-byte packs in a row
inline constexpr int kWideThreads = kWideWarps * cuda::kWarp;
static_assert(kWideThreads == kThreads && kWideRows == kWideKeys, "launched as the float32 kernel; one kind of tile");
inline constexpr int kWeightStride = kWideKeys + 8;  // neighbouring rows start in different banks

template <class T>
using WideTile = cuda::PermutedRows<T, kWideKeys, kWidePacks>;
// Shared memory of a block: 99 KiB, which every supported architecture has.
template <class T>
struct WideShared {
  WideTile<T> q;
  WideTile<T> keys;
  WideTile<T> values;
  T weights[kWideRows * kWeightStride];
  // After each tile, holds each warp's maximum score of each row. At the end, holds each warp's sum of weights of each
  // row.
  float of_warps[kWideGroupWarps][kWideRows];
};

// The keys that a block processes, in tiles that begin at multiples of kWideKeys.
struct KeyRange {
  int begin;
  int end;
};

// Copies keys or values to shared memory. Keys outside the range become zeros, so that a weight of zero never
// multiplies NaN.
template <class T>
__device__ inline void load_wide(const Problem& p, const int* pages, int kv_head, int first, const KeyRange& keys,
                                 const void* cache, WideTile<T>& tile) {
  for (int i = static_cast<int>(threadIdx.x); i < kWideKeys * kWidePacks; i += kWideThreads) {
    const int key = first + i / kWidePacks;
    const bool real = key >= keys.begin && key < keys.end;
    const std::int64_t slot =
        real ? static_cast<std::int64_t>(pages[key / p.page_size]) * p.page_size + key % p.page_size : 0;
    cuda::copy_async(tile.pack(i / kWidePacks, i % kWidePacks),
                     static_cast<const T*>(cache) + (slot * p.kv_heads + kv_head) * kWideDim + i % kWidePacks * 8,
                     real);
  }
  cuda::commit_copies();
}

template <class T>
__device__ inline void load_wide_queries(const Problem& p, const Rows& rows, int kv_head, WideTile<T>& tile) {
  for (int i = static_cast<int>(threadIdx.x); i < kWideRows * kWidePacks; i += kWideThreads) {
    const int row = i / kWidePacks;
    const bool real = row < rows.rows;
    const int at = rows.row_begin + row;
    const std::int64_t token = rows.query_start + at / p.group;
    const std::int64_t head = token * p.heads + kv_head * p.group + at % p.group;
    cuda::copy_async(tile.pack(row, i % kWidePacks),
                     static_cast<const T*>(p.q) + (real ? head * kWideDim + i % kWidePacks * 8 : 0), real);
  }
}

// One warp's sums for its 16 rows. Lane l has rows l / 4 and l / 4 + 8.
struct WideSums {
  float out[kWideColumns / 8][4] = {};
  cuda::OnlineSoftmax<cuda::BaseTwo> rows[2];  // running max over all keys, and sum of weights over this lane's keys
};

template <class T>
__device__ inline void store_wide(const Problem& p, const Rows& rows, int kv_head, int split, int first_row,
                                  int first_column, const WideSums& sums) {
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = first_row + lane / 4 + 8 * r;
    if (row >= rows.rows) continue;
    const std::int64_t token = rows.query_start + (rows.row_begin + row) / p.group;
    const int head = kv_head * p.group + (rows.row_begin + row) % p.group;
    const std::int64_t at = (p.splits > 1 ? token * p.splits + split : token) * p.heads + head;
    const float inverse = sums.rows[r].inverse();
    if (p.splits > 1 && first_column == 0 && lane % 4 == 0)
      p.partial_lse[at] = sums.rows[r].sum > 0 ? sums.rows[r].running_max + log2f(sums.rows[r].sum) : -INFINITY;
#pragma unroll
    for (int n = 0; n < kWideColumns / 8; ++n) {
      const float low = sums.out[n][2 * r] * inverse;
      const float high = sums.out[n][2 * r + 1] * inverse;
      const std::int64_t to = at * kWideDim + first_column + n * 8 + lane % 4 * 2;
      if (p.splits > 1) {
        *reinterpret_cast<float2*>(p.partial_values + to) = make_float2(low, high);
      } else {
        *reinterpret_cast<std::uint32_t*>(static_cast<T*>(p.out) + to) = cuda::pack_two<T>(low, high);
      }
    }
  }
}

// Computes attention for one tile of rows and one range of the keys that these rows see. blockIdx.x is the tile slot
// (find_rows()), blockIdx.y is the KV head, and blockIdx.z is the range of keys.
template <class T>
__global__ void __launch_bounds__(kWideThreads, 2) wide_attention(const Problem p) {
  extern __shared__ __align__(128) unsigned char bytes[];
  auto& shared = *reinterpret_cast<WideShared<T>*>(bytes);
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
  const int warp = static_cast<int>(threadIdx.x) / cuda::kWarp;
  const int in_group = warp % kWideGroupWarps;
  const int first_row = warp / kWideGroupWarps * 16;
  const int quad = lane / 4;
  const int in_quad = lane % 4;
  const int kv_head = static_cast<int>(blockIdx.y);
  const int split = static_cast<int>(blockIdx.z);
  Rows rows;
  if (!find_rows(p, static_cast<int>(blockIdx.x), kWideRows, rows)) return;
  const int* const pages = p.page_table + static_cast<std::int64_t>(rows.request) * p.max_pages;
  const KeyRange keys = [&] {
    const int first = rows.offset + rows.row_begin / p.group;
    const int seen = rows.offset + (rows.row_begin + rows.rows - 1) / p.group + 1;
    const int begin = p.window > 0 ? max(0, first - p.window + 1) : 0;
    const int range = ceil_div(ceil_div(seen - begin, p.splits), kWideKeys) * kWideKeys;
    return KeyRange{begin + split * range, min(seen, begin + (split + 1) * range)};
  }();

  constexpr float kLog2E = 1.4426950408889634f;
  const float scale = p.softcap > 0 ? p.scale / p.softcap : p.scale * kLog2E;
  WideSums sums;
  if (p.sinks != nullptr && split == 0) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = rows.row_begin + first_row + quad + 8 * r;
      sums.rows[r].running_max = p.sinks[kv_head * p.group + row % p.group] * kLog2E;
      sums.rows[r].sum = in_group == 0 && in_quad == 0 ? 1.0f : 0.0f;
    }
  }
  load_wide_queries(p, rows, kv_head, shared.q);
  int first = keys.begin / kWideKeys * kWideKeys;
  load_wide(p, pages, kv_head, first, keys, p.k_cache, shared.keys);
  for (; first < keys.end; first += kWideKeys) {
    cuda::wait_for_copies<0>();
    __syncthreads();
    load_wide(p, pages, kv_head, first, keys, p.v_cache, shared.values);
    float score[4] = {};  // scores of 16 rows and 8 keys
#pragma unroll 4
    for (int d = 0; d < kWideDim / 32; ++d) {
      std::uint32_t k[4];
      cuda::load_matrices<false>(k, shared.keys.pack(in_group * 8 + lane % 8, d * 4 + lane / 8));
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        std::uint32_t q[4];
        cuda::load_matrices<false>(q, shared.q.pack(first_row + lane % 16, d * 4 + half * 2 + lane / 16));
        cuda::multiply_tile<T>(score, q, k[half * 2], k[half * 2 + 1]);
      }
    }
    float most[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = first + in_group * 8 + in_quad * 2 + i % 2;
      const int position = rows.offset + (rows.row_begin + first_row + quad + i / 2 * 8) / p.group;
      const bool hidden =
          key > position || (p.window > 0 && key <= position - p.window) || key < keys.begin || key >= keys.end;
      score[i] *= scale;
      if (p.softcap > 0) score[i] = p.softcap * kLog2E * tanhf(score[i]);
      if (hidden) score[i] = -INFINITY;
      most[i / 2] = fmaxf(most[i / 2], score[i]);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      most[r] = cuda::quad_max(most[r]);
      if (in_quad == 0) shared.of_warps[in_group][first_row + quad + 8 * r] = most[r];
    }
    __syncthreads();
    if (first + kWideKeys < keys.end) {
      load_wide(p, pages, kv_head, first + kWideKeys, keys, p.k_cache, shared.keys);
    } else {
      cuda::commit_copies();
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = first_row + quad + 8 * r;
      float now = sums.rows[r].running_max;
#pragma unroll
      for (int w = 0; w < kWideGroupWarps; ++w) now = fmaxf(now, shared.of_warps[w][row]);
      const float shrink = sums.rows[r].template raise<cuda::Keys::kMaybeNone>(now);
#pragma unroll
      for (int n = 0; n < kWideColumns / 8; ++n) {
        sums.out[n][2 * r] *= shrink;
        sums.out[n][2 * r + 1] *= shrink;
      }
      float weight[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        weight[i] = sums.rows[r].template weight<cuda::Keys::kMaybeNone>(score[2 * r + i]);
        sums.rows[r].sum += weight[i];
      }
      *reinterpret_cast<std::uint32_t*>(shared.weights + row * kWeightStride + in_group * 8 + in_quad * 2) =
          cuda::pack_two<T>(weight[0], weight[1]);
    }
    cuda::wait_for_copies<1>();
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kWideKeys / 16; ++k) {
      std::uint32_t weights[4];
      cuda::load_matrices<false>(weights,
                                 shared.weights + (first_row + lane % 16) * kWeightStride + k * 16 + lane / 16 * 8);
#pragma unroll
      for (int n = 0; n < kWideColumns / 16; ++n) {
        std::uint32_t v[4];
        cuda::load_matrices<true>(
            v, shared.values.pack(k * 16 + lane % 16, in_group * (kWideColumns / 8) + n * 2 + lane / 16));
        cuda::multiply_tile<T>(sums.out[2 * n], weights, v[0], v[1]);
        cuda::multiply_tile<T>(sums.out[2 * n + 1], weights, v[2], v[3]);
      }
    }
  }

  // Each warp of a group has the sum of the weights of its own keys. Adds the sums of the group's warps.
  cuda::wait_for_copies<0>();
  __syncthreads();
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float total = cuda::warp_sum(sums.rows[r].sum, 4);
    if (in_quad == 0) shared.of_warps[in_group][first_row + quad + 8 * r] = total;
  }
  __syncthreads();
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    sums.rows[r].sum = 0;
#pragma unroll
    for (int w = 0; w < kWideGroupWarps; ++w) sums.rows[r].sum += shared.of_warps[w][first_row + quad + 8 * r];
  }
  store_wide<T>(p, rows, kv_head, split, first_row, in_group * kWideColumns, sums);
}

}  // namespace tessera::own_attention
