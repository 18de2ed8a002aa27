// Our own attention on CUDA, for every dtype, window, softcap and group, and head sizes to 512; arithmetic in float32.
//
// A block takes one KV head and a tile of query rows of one request, a row being one query head of one token, and
// goes over the keys that its rows see in tiles: scores, online softmax, sums of values. Where a forward has too few
// tiles for the device, the keys are cut into `splits` ranges for blocks of their own, and merge_states joins them.
//
// The launch depends on the bucket's rows alone; blocks find their request in the metadata when they run.
//
// In deterministic forwards keys are not cut. Tiles of keys start at the same keys whatever rows a block has, a key
// that a row does not see adds an exact zero to it, and every product is added by a fused operation that is written as
// one: so a row's bits do not depend on the other rows.
#include <algorithm>
#include <string>

#include "tessera/ops/attention_merge.cuh"
#include "tessera/ops/cuda_attention.h"
#include "tessera/ops/cuda_math.cuh"
#include "tessera/ops/cuda_op.h"

namespace tessera {
namespace {

using cuda::from_float;
using cuda::Pack;
using cuda::to_float;

constexpr int kThreads = 256;  // 16 × 16: rows ty, ty + 16, …; keys tx, tx + 16, …; elements 4·tx, 4·tx + 64, …

struct Problem {
  const void* q;        // X[num_rows, heads, head_dim]
  const void* k_cache;  // Y[slots, kv_heads, head_dim]
  const void* v_cache;
  void* out;              // X[num_rows, heads, head_dim]
  float* partial_values;  // [num_rows, splits, heads, head_dim] where splits > 1
  float* partial_lse;     // [num_rows, splits, heads]
  const int* num_requests;
  const int* query_starts;
  const int* kv_lens;
  const int* page_table;
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

// What fits the shared memory of every architecture (99 KiB): rows and keys of a tile for a padded head size.
template <int kDim>
struct Tile {
  static constexpr int kRows = kDim <= 128 ? 32 : 16;
  static constexpr int kKeys = kDim <= 128 ? 64 : kDim <= 256 ? 32 : 16;
  static constexpr int kStride = kDim + 4;  // floats: neighbouring rows start in other banks

  float q[kRows][kStride];  // times scale
  float keys[kKeys][kStride];
  float values[kKeys][kStride];
  float weights[kRows][kKeys];
  long offsets[kKeys];  // elements from the cache's start to the key; -1: no key
};

// The rows [row_begin, row_begin + rows) of a request and KV head; row r is query head r mod G of token r / G.
struct Rows {
  int request;
  int query_start;
  int row_begin;
  int rows;
  int offset;  // position of the request's first token here: kv_len - query_len
};

__device__ inline int ceil_div(int n, int by) { return (n + by - 1) / by; }

// Tiles of request b have the slots from query_starts[b] · G / kRows + b on: there is always one more slot between two
// requests than whole tiles, so tiles find their request without a sum over those before it.
__device__ inline bool find_rows(const Problem& p, int slot, int tile_rows, Rows& out) {
  int n = min(*p.num_requests, p.max_requests);
  while (n > 0 && p.query_starts[n] > p.num_rows) --n;  // a defect of the runner: nothing is written out of bounds
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
  return out.rows > 0;
}

// Four neighbouring elements of a row as floats; zero past head_dim. Rows of other sizes than multiples of four are
// not aligned for one access.
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
    *reinterpret_cast<float4*>(&tile.q[r][d]) = {x.x * p.scale, x.y * p.scale, x.z * p.scale, x.w * p.scale};
  }
}

// Keys and values of the offsets; zero where there is no key, so that a weight of zero stays without effect.
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

// Over the 16 threads of one row.
__device__ inline float row_max(float x) {
  for (int step = 8; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step, cuda::kWarp));
  return x;
}

// One thread's part of the rows: elements 4·tx + 64·j of rows ty + 16·i.
template <int kDim>
struct Sums {
  static constexpr int kRows = Tile<kDim>::kRows / 16;
  static constexpr int kFours = kDim / 64;
  float4 values[kRows][kFours] = {};  // Σ exp(s - greatest) · v
  float greatest[kRows];
  float total[kRows];  // Σ exp(s - greatest)
};

// Only the rows ty + 16·i with i < used: a decode step fills a tile's first rows alone.
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

// Scores of hidden keys to -inf, the sums to the new greatest score, weights to shared memory.
template <int kDim>
__device__ inline void soften(const Problem& p, const Rows& rows, int first_key, int tx, int ty,
                              float (&scores)[Sums<kDim>::kRows][4], Sums<kDim>& sums, Tile<kDim>& tile) {
  constexpr int kKeys = Tile<kDim>::kKeys / 16;
#pragma unroll
  for (int i = 0; i < Sums<kDim>::kRows; ++i) {
    const int position = rows.offset + (rows.row_begin + ty + 16 * i) / p.group;
    float greatest = -INFINITY;
#pragma unroll
    for (int j = 0; j < kKeys; ++j) {
      const int key = first_key + tx + 16 * j;
      const bool hidden = key > position || (p.window > 0 && key <= position - p.window) ||
                          tile.offsets[tx + 16 * j] < 0 || ty + 16 * i >= rows.rows;
      if (p.softcap > 0) scores[i][j] = p.softcap * tanhf(scores[i][j] / p.softcap);
      if (hidden) scores[i][j] = -INFINITY;
      greatest = fmaxf(greatest, scores[i][j]);
    }
    greatest = fmaxf(row_max(greatest), sums.greatest[i]);
    const float shrink = sums.greatest[i] == -INFINITY ? 0.0f : expf(sums.greatest[i] - greatest);
    float total = 0;
#pragma unroll
    for (int j = 0; j < kKeys; ++j) {
      const float weight = scores[i][j] == -INFINITY ? 0.0f : expf(scores[i][j] - greatest);
      tile.weights[ty + 16 * i][tx + 16 * j] = weight;
      total += weight;
    }
    sums.total[i] = fmaf(sums.total[i], shrink, cuda::warp_sum(total, 16));
    sums.greatest[i] = greatest;
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
#pragma unroll
  for (int i = 0; i < Sums<kDim>::kRows; ++i) {
    if (ty + 16 * i >= rows.rows) continue;
    const int row = rows.row_begin + ty + 16 * i;
    const long token = rows.query_start + row / p.group;
    const int head = kv_head * p.group + row % p.group;
    const long at = ((p.splits > 1 ? token * p.splits + split : token)) * p.heads + head;
    const float inverse = sums.total[i] > 0 ? 1 / sums.total[i] : 0.0f;
    constexpr float kLog2E = 1.4426950408889634f;
    if (p.splits > 1 && tx == 0)
      p.partial_lse[at] = sums.total[i] > 0 ? sums.greatest[i] * kLog2E + log2f(sums.total[i]) : -INFINITY;
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

// Grid [slots, kv_heads, splits].
template <int kDim>
__global__ void __launch_bounds__(kThreads) attention(const Problem p) {
  extern __shared__ __align__(16) unsigned char shared[];
  using Shared = Tile<kDim>;
  auto& tile = *reinterpret_cast<Shared*>(shared);
  const int tx = static_cast<int>(threadIdx.x) % 16;
  const int ty = static_cast<int>(threadIdx.x) / 16;
  const int kv_head = static_cast<int>(blockIdx.y);
  const int split = static_cast<int>(blockIdx.z);
  Rows rows;
  if (!find_rows(p, static_cast<int>(blockIdx.x), Shared::kRows, rows)) return;

  // Keys that any of the rows sees, and this block's range of them.
  const int first = rows.offset + rows.row_begin / p.group;
  const int last = rows.offset + (rows.row_begin + rows.rows - 1) / p.group;
  int begin = p.window > 0 ? max(0, first - p.window + 1) : 0;
  int end = last + 1;
  const int range = ceil_div(ceil_div(end - begin, p.splits), Shared::kKeys) * Shared::kKeys;
  begin += split * range;
  end = min(end, begin + range);

  with_type(p.dtype, [&]<class X>() { load_queries<X>(p, rows, kv_head, tile); });
  Sums<kDim> sums;
  for (int i = 0; i < Sums<kDim>::kRows; ++i) {
    sums.greatest[i] = -INFINITY;
    sums.total[i] = 0;
  }
  const int used = ceil_div(rows.rows, 16);
  const int* pages = p.page_table + static_cast<long>(rows.request) * p.max_pages;
  for (int first_key = begin / Shared::kKeys * Shared::kKeys; first_key < end; first_key += Shared::kKeys) {
    if (threadIdx.x < Shared::kKeys) {
      const int key = first_key + static_cast<int>(threadIdx.x);
      long offset = -1;
      if (key >= begin && key < end) {
        const long slot = static_cast<long>(pages[key / p.page_size]) * p.page_size + key % p.page_size;
        offset = (slot * p.kv_heads + kv_head) * p.head_dim;
      }
      tile.offsets[threadIdx.x] = offset;
    }
    __syncthreads();
    with_type(p.cache_dtype, [&]<class Y>() { load_keys<Y>(p, tile); });
    __syncthreads();
    float scores[Sums<kDim>::kRows][4] = {};
    multiply(tile, tx, ty, used, scores);
    soften(p, rows, first_key, tx, ty, scores, sums, tile);
    __syncwarp();  // a row's weights are written and read by one half of a warp
    add_values(tile, tx, ty, used, sums);
    __syncthreads();
  }
  store(p, rows, kv_head, split, tx, ty, sums);
}

constexpr int padded_dim(std::int64_t head_dim) {
  return head_dim <= 64 ? 64 : head_dim <= 128 ? 128 : head_dim <= 256 ? 256 : 512;
}
constexpr int tile_rows(std::int64_t head_dim) { return padded_dim(head_dim) <= 128 ? 32 : 16; }

// Tiles of any requests with num_rows rows in all.
std::int64_t slots(const CudaAttention& a, std::int64_t requests) {
  return a.num_rows * a.group() / tile_rows(a.shape.head_dim) + requests;
}

// Enough blocks for two on every multiprocessor. From the bucket's rows alone, as if each were a request.
int splits(const CudaAttention& a, int multiprocessors) {
  if (a.deterministic) return 1;
  constexpr std::int64_t kMost = 16;
  const std::int64_t blocks = std::max<std::int64_t>(1, slots(a, a.num_rows) * a.shape.kv_heads);
  return static_cast<int>(std::clamp<std::int64_t>(2 * multiprocessors / blocks, 1, kMost));
}

std::size_t partial_values_bytes(const CudaAttention& a, int parts) {
  const auto floats = static_cast<std::size_t>(a.num_rows * parts * a.shape.heads * a.shape.head_dim);
  return (floats * sizeof(float) + kDeviceAlignment - 1) / kDeviceAlignment * kDeviceAlignment;
}

Problem make_problem(const CudaAttention& a, int parts) {
  std::byte* values = parts > 1 ? a.workspace : nullptr;
  std::byte* lse = parts > 1 ? values + partial_values_bytes(a, parts) : nullptr;
  return {.q = a.q,
          .k_cache = a.k_cache,
          .v_cache = a.v_cache,
          .out = a.out,
          .partial_values = reinterpret_cast<float*>(values),
          .partial_lse = reinterpret_cast<float*>(lse),
          .num_requests = a.metadata.num_requests,
          .query_starts = a.metadata.query_starts,
          .kv_lens = a.metadata.kv_lens,
          .page_table = a.metadata.page_table,
          .max_pages = static_cast<int>(a.metadata.max_pages_per_request),
          .max_requests = static_cast<int>(a.max_requests()),
          .num_rows = static_cast<int>(a.num_rows),
          .heads = static_cast<int>(a.shape.heads),
          .kv_heads = static_cast<int>(a.shape.kv_heads),
          .group = static_cast<int>(a.group()),
          .head_dim = static_cast<int>(a.shape.head_dim),
          .page_size = static_cast<int>(a.page_size),
          .window = static_cast<int>(a.shape.window),
          .splits = parts,
          .dtype = a.shape.dtype,
          .cache_dtype = a.cache_dtype,
          .scale = a.scale,
          .softcap = static_cast<float>(a.shape.softcap)};
}

template <int kDim>
Result<std::unique_ptr<BoundOp>> bind(const CudaAttention& a, const Problem& p) {
  const dim3 grid(static_cast<unsigned>(slots(a, a.max_requests())), static_cast<unsigned>(a.shape.kv_heads),
                  static_cast<unsigned>(p.splits));
  constexpr std::size_t kBytes = sizeof(Tile<kDim>);
  TRY(allow_shared_memory(reinterpret_cast<const void*>(attention<kDim>), kBytes, "attention"));
  return cuda::dispatch_dtype(a.shape.dtype, "attention", [&]<class X>() -> Result<std::unique_ptr<BoundOp>> {
    const cuda::MergeStates merge{.values = p.partial_values,
                                  .lse = p.partial_lse,
                                  .part_starts = nullptr,
                                  .parts_per_row = p.splits,
                                  .num_requests = p.num_requests,
                                  .query_starts = p.query_starts,
                                  .out = p.out,
                                  .rows = p.num_rows,
                                  .heads = p.heads,
                                  .head_dim = p.head_dim};
    return make_cuda_op("attention", [p, merge, grid](cudaStream_t stream) {
      if (grid.x == 0) return;
      attention<kDim><<<grid, kThreads, kBytes, stream>>>(p);
      if (p.splits > 1) cuda::launch_merge_states<float, X>(merge, stream);
    });
  });
}

}  // namespace

std::size_t own_attention_workspace_bytes(const CudaAttention& attention, int multiprocessors) {
  const int parts = splits(attention, multiprocessors);
  if (parts == 1) return 0;
  const auto lse = static_cast<std::size_t>(attention.num_rows * parts * attention.shape.heads) * sizeof(float);
  return partial_values_bytes(attention, parts) + lse;
}

Result<std::unique_ptr<BoundOp>> bind_own_attention(const CudaAttention& attention, int multiprocessors) {
  const Problem p = make_problem(attention, splits(attention, multiprocessors));
  switch (padded_dim(attention.shape.head_dim)) {
    case 64: return bind<64>(attention, p);
    case 128: return bind<128>(attention, p);
    case 256: return bind<256>(attention, p);
    default: break;
  }
  if (attention.shape.head_dim > kGreatestOwnHeadDim)
    return unimplemented("attention on CUDA takes head sizes to " + std::to_string(kGreatestOwnHeadDim) + ", not " +
                         std::to_string(attention.shape.head_dim));
  return bind<512>(attention, p);
}

}  // namespace tessera
