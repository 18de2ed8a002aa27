// Functions with which a block of our own attention kernel (attention.cu) finds its rows, loads queries, keys and
// values, and computes the online softmax of its rows.
#pragma once

#include "tessera/ir/type.h"
#include "tessera/ops/cache/cache_type.h"
#include "tessera/ops/cuda/cuda_float8.cuh"
#include "tessera/ops/cuda/cuda_math.cuh"
#include "tessera/ops/cuda/online_softmax.cuh"

namespace tessera::own_attention {

using cuda::from_float;
using cuda::Pack;
using cuda::to_float;

inline constexpr int kThreads = 256;  // 16 × 16; thread (tx, ty) has rows ty, ty + 16, … and keys tx, tx + 16, …

struct Problem {
  const void* q;        // X[num_rows, heads, head_dim]
  const void* k_cache;  // Y[slots, kv_heads, head_dim]
  const void* v_cache;
  void* out;           // X[num_rows, heads, head_dim]
  const float* sinks;  // [heads]; null without sinks
  CacheScales scales = {};
  float* partial_values;  // [num_rows, splits, heads, head_dim] if splits > 1
  float* partial_lse;     // [num_rows, splits, heads]
  const int* num_requests;
  const int* query_starts;
  const int* kv_lens;
  const int* page_table;
  const int* wanted_starts = nullptr;  // [requests]: each request's first wanted row; null: all rows are wanted
  int max_pages;
  int max_requests;
  int num_rows;
  int heads;
  int kv_heads;
  int group;
  int head_dim;
  int page_size;
  int window;
  int splits;
  ir::DType dtype;
  ir::DType cache_dtype;
  float scale;
  float softcap;
};

// A tile of rows and keys in shared memory, for a padded head size. It has at most 99 KiB, which every supported
// architecture has.
template <int kDim>
struct Tile {
  static constexpr int kRows = kDim <= 128 ? 32 : 16;
  static constexpr int kKeys = kDim <= 128 ? 64 : kDim <= 256 ? 32 : 16;
  static constexpr int kStride = kDim + 4;  // in floats; neighbouring rows start in different banks of shared memory

  float q[kRows][kStride];  // the queries, multiplied by the scale of the scores and the scale of the keys
  float keys[kKeys][kStride];
  float values[kKeys][kStride];
  float weights[kRows][kKeys];
  long offsets[kKeys];  // offset of each key from the start of the cache, in elements; -1: no key
};

// The rows [row_begin, row_begin + rows) of a request and KV head. With G = Problem::group, row r belongs to token
// r / G and to query head r mod G of the KV head.
struct Rows {
  int request;
  int query_start;
  int row_begin;
  int rows;
  int offset;  // position of the request's first query token: kv_len - query_len
};

__device__ inline int ceil_div(int n, int by) { return (n + by - 1) / by; }

// Finds the rows of the block's tile. `slot` is the block's blockIdx.x. Each request has at least as many slots as
// tiles, and its further slots have no rows. With G = p.group, the slots of request b begin at query_starts[b] · G /
// tile_rows + b. This number depends on query_starts alone, so a block need not count the tiles of earlier requests.
// Returns false if the slot has no wanted rows.
__device__ inline bool find_rows(const Problem& p, int slot, int tile_rows, Rows& out) {
  int n = min(*p.num_requests, p.max_requests);
  while (n > 0 && p.query_starts[n] > p.num_rows) --n;  // a defect of the runner must not cause writes out of bounds
  const auto first_slot = [&](int b) { return p.query_starts[b] * p.group / tile_rows + b; };
  int low = 0;
  int high = n;  // the request is in [low, high)
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (first_slot(middle) <= slot ? low : high) = middle;
  }
  if (low >= n) return false;
  const int query_len = p.query_starts[low + 1] - p.query_starts[low];
  out.request = low;
  out.query_start = p.query_starts[low];
  out.row_begin = (slot - first_slot(low)) * tile_rows;
  out.rows = min(tile_rows, query_len * p.group - out.row_begin);
  out.offset = p.kv_lens[low] - query_len;
  if (p.wanted_starts != nullptr && out.row_begin + out.rows <= p.wanted_starts[low] * p.group) return false;
  return out.rows > 0;
}

// Loads four neighbouring elements of a row as floats. Elements past head_dim are zero. If head_dim is not a multiple
// of four, the elements are loaded one by one, because rows are not aligned for a load of four elements.
template <class T>
__device__ inline float4 load_four(const T* row, int d, int head_dim) {
  if (head_dim % 4 == 0) {
    if (d >= head_dim) return {};
    const Pack<T, 4> x = cuda::load_pack<T, 4>(row + d);
    return {to_float(x.at[0]), to_float(x.at[1]), to_float(x.at[2]), to_float(x.at[3])};
  }
  const auto one = [&](int i) { return i < head_dim ? to_float(row[i]) : 0.0f; };
  return {one(d), one(d + 1), one(d + 2), one(d + 3)};
}

template <class T, int kDim>
__device__ inline void load_queries(const Problem& p, const Rows& rows, int kv_head, Tile<kDim>& tile) {
  const float scale = p.scale * cuda::scale_or_one(p.scales.keys);
  for (int i = static_cast<int>(threadIdx.x); i < Tile<kDim>::kRows * (kDim / 4); i += kThreads) {
    const int r = i / (kDim / 4);
    const int d = i % (kDim / 4) * 4;
    float4 x{};
    if (r < rows.rows) {
      const int row = rows.row_begin + r;
      const long token = rows.query_start + row / p.group;
      const int head = kv_head * p.group + row % p.group;
      x = load_four(static_cast<const T*>(p.q) + (token * p.heads + head) * p.head_dim, d, p.head_dim);
    }
    *reinterpret_cast<float4*>(&tile.q[r][d]) = {x.x * scale, x.y * scale, x.z * scale, x.w * scale};
  }
}

// Loads the keys and values of a tile from the offsets in tile.offsets. Missing keys and values become zero, because
// the product of a zero weight and NaN would be NaN.
template <class T, int kDim>
__device__ inline void load_keys(const Problem& p, Tile<kDim>& tile) {
  for (int i = static_cast<int>(threadIdx.x); i < Tile<kDim>::kKeys * (kDim / 4); i += kThreads) {
    const int key = i / (kDim / 4);
    const int d = i % (kDim / 4) * 4;
    const long offset = tile.offsets[key];
    float4 k{};
    float4 v{};
    if (offset >= 0) {
      k = load_four(static_cast<const T*>(p.k_cache) + offset, d, p.head_dim);
      v = load_four(static_cast<const T*>(p.v_cache) + offset, d, p.head_dim);
    }
    *reinterpret_cast<float4*>(&tile.keys[key][d]) = k;
    *reinterpret_cast<float4*>(&tile.values[key][d]) = v;
  }
}

// Calls f.operator()<T>() for a floating-point dtype.
template <class F>
__device__ inline void with_type(ir::DType dtype, F&& f) {
  if (dtype == ir::DType::kFloat32) {
    f.template operator()<float>();
  } else if (dtype == ir::DType::kBFloat16) {
    f.template operator()<__nv_bfloat16>();
  } else {
    f.template operator()<__half>();
  }
}

// Calls f.operator()<T>(), where T is the element type of the cache.
template <class F>
__device__ inline void with_cache_type(ir::DType dtype, F&& f) {
  if (dtype == ir::DType::kFloat8E4M3) {
    f.template operator()<__nv_fp8_e4m3>();
  } else {
    with_type(dtype, f);
  }
}

// The sums of thread (tx, ty), for the rows ty + 16·i. The thread has groups of four neighbouring elements of a row.
// Group j begins at element 4·tx + 64·j.
template <int kDim>
struct Sums {
  static constexpr int kRows = Tile<kDim>::kRows / 16;
  static constexpr int kFours = kDim / 64;
  float4 values[kRows][kFours] = {};  // Σ exp(s - running max) · v
  cuda::OnlineSoftmax<cuda::BaseE> rows[kRows];
};

// Initialises the sums before the first key. A sink acts as a key with a zero value. Only the first range of a row's
// keys includes the sink. The log-sum-exp of this range then contains the sink, so merging the ranges needs no special
// case.
template <int kDim>
__device__ inline void start(const Problem& p, const Rows& rows, int kv_head, int split, int ty, Sums<kDim>& sums) {
  for (int i = 0; i < Sums<kDim>::kRows; ++i) {
    const bool sink = p.sinks != nullptr && split == 0 && ty + 16 * i < rows.rows;
    sums.rows[i].running_max = sink ? p.sinks[kv_head * p.group + (rows.row_begin + ty + 16 * i) % p.group] : -INFINITY;
    sums.rows[i].sum = sink ? 1.0f : 0.0f;
  }
}

// Computes the scores of a tile, but only for the rows ty + 16·i with i < used, because a decode step fills only a
// tile's first rows.
template <int kDim>
__device__ inline void multiply(const Tile<kDim>& tile, int tx, int ty, int used,
                                float (&scores)[Sums<kDim>::kRows][4]) {
  constexpr int kKeys = Tile<kDim>::kKeys / 16;
#pragma unroll 4
  for (int d = 0; d < kDim; d += 4) {
    float4 k[kKeys];
#pragma unroll
    for (int j = 0; j < kKeys; ++j) k[j] = *reinterpret_cast<const float4*>(&tile.keys[tx + 16 * j][d]);
#pragma unroll
    for (int i = 0; i < Sums<kDim>::kRows; ++i) {
      if (i >= used) break;
      const float4 q = *reinterpret_cast<const float4*>(&tile.q[ty + 16 * i][d]);
#pragma unroll
      for (int j = 0; j < kKeys; ++j)
        scores[i][j] = fmaf(q.w, k[j].w, fmaf(q.z, k[j].z, fmaf(q.y, k[j].y, fmaf(q.x, k[j].x, scores[i][j]))));
    }
  }
}

// Takes one step of the online softmax. Scores of keys that a row does not see become -inf, the sums so far are
// rescaled to the new running max, and the weights of this tile's keys go to shared memory.
template <int kDim>
__device__ inline void update_softmax(const Problem& p, const Rows& rows, int first_key, int tx, int ty,
                                      float (&scores)[Sums<kDim>::kRows][4], Sums<kDim>& sums, Tile<kDim>& tile) {
  constexpr int kKeys = Tile<kDim>::kKeys / 16;
#pragma unroll
  for (int i = 0; i < Sums<kDim>::kRows; ++i) {
    const int position = rows.offset + (rows.row_begin + ty + 16 * i) / p.group;
    float most = -INFINITY;
#pragma unroll
    for (int j = 0; j < kKeys; ++j) {
      const int key = first_key + tx + 16 * j;
      const bool hidden = key > position || (p.window > 0 && key <= position - p.window) ||
                          tile.offsets[tx + 16 * j] < 0 || ty + 16 * i >= rows.rows;
      if (p.softcap > 0) scores[i][j] = p.softcap * tanhf(scores[i][j] / p.softcap);
      if (hidden) scores[i][j] = -INFINITY;
      most = fmaxf(most, scores[i][j]);
    }
    auto& row = sums.rows[i];
    const float shrink = row.template raise<cuda::Keys::kMaybeNone>(fmaxf(cuda::warp_max(most, 16), row.running_max));
    float total = 0;
#pragma unroll
    for (int j = 0; j < kKeys; ++j) {
      const float weight = row.template weight<cuda::Keys::kMaybeNone>(scores[i][j]);
      tile.weights[ty + 16 * i][tx + 16 * j] = weight;
      total += weight;
    }
    row.sum += cuda::warp_sum(total, 16);
#pragma unroll
    for (float4& x : sums.values[i]) x = {x.x * shrink, x.y * shrink, x.z * shrink, x.w * shrink};
  }
}

template <int kDim>
__device__ inline void add_values(const Tile<kDim>& tile, int tx, int ty, int used, Sums<kDim>& sums) {
#pragma unroll 4
  for (int key = 0; key < Tile<kDim>::kKeys; ++key) {
    float weight[Sums<kDim>::kRows];
#pragma unroll
    for (int i = 0; i < Sums<kDim>::kRows; ++i) weight[i] = tile.weights[ty + 16 * i][key];
#pragma unroll
    for (int j = 0; j < Sums<kDim>::kFours; ++j) {
      const float4 v = *reinterpret_cast<const float4*>(&tile.values[key][4 * tx + 64 * j]);
#pragma unroll
      for (int i = 0; i < Sums<kDim>::kRows; ++i) {
        if (i >= used) break;
        float4& x = sums.values[i][j];
        x = {fmaf(weight[i], v.x, x.x), fmaf(weight[i], v.y, x.y), fmaf(weight[i], v.z, x.z),
             fmaf(weight[i], v.w, x.w)};
      }
    }
  }
}

template <class X>
__device__ inline void store_four(X* row, int d, int head_dim, float4 x) {
  const float four[4] = {x.x, x.y, x.z, x.w};
  for (int i = 0; i < 4; ++i)
    if (d + i < head_dim) row[d + i] = from_float<X>(four[i]);
}

template <int kDim>
__device__ inline void store(const Problem& p, const Rows& rows, int kv_head, int split, int tx, int ty,
                             const Sums<kDim>& sums) {
  const float value_scale = cuda::scale_or_one(p.scales.values);
#pragma unroll
  for (int i = 0; i < Sums<kDim>::kRows; ++i) {
    if (ty + 16 * i >= rows.rows) continue;
    const int row = rows.row_begin + ty + 16 * i;
    const long token = rows.query_start + row / p.group;
    const int head = kv_head * p.group + row % p.group;
    const long at = ((p.splits > 1 ? token * p.splits + split : token)) * p.heads + head;
    const float inverse = sums.rows[i].inverse() * value_scale;
    constexpr float kLog2E = 1.4426950408889634f;
    if (p.splits > 1 && tx == 0)
      p.partial_lse[at] =
          sums.rows[i].sum > 0 ? sums.rows[i].running_max * kLog2E + log2f(sums.rows[i].sum) : -INFINITY;
#pragma unroll
    for (int j = 0; j < Sums<kDim>::kFours; ++j) {
      const float4 x = sums.values[i][j];
      const float4 y = {x.x * inverse, x.y * inverse, x.z * inverse, x.w * inverse};
      const int d = 4 * tx + 64 * j;
      if (p.splits > 1) {
        store_four(p.partial_values + at * p.head_dim, d, p.head_dim, y);
      } else {
        with_type(p.dtype, [&]<class X>() { store_four(static_cast<X*>(p.out) + at * p.head_dim, d, p.head_dim, y); });
      }
    }
  }
}

}  // namespace tessera::own_attention
