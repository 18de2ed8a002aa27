// Our own attention kernel over a cache of E4M3 for queries in bf16 and f16, on tensor cores, with windows, soft caps
// and sinks. It replaces the float32 kernel of attention.cu for heads of 64, 128 and 256 elements. It has the same
// arguments (Problem) and writes partial results of the same form.
//
// Eight warps have 16 rows each and share tiles of keys. The block converts each tile once, exactly, to the queries'
// type while it copies the tile to shared memory. While a tile is used, the bytes of the next tile are loaded to
// registers.
//
// A row's sums do not depend on other rows, and a key that the row does not see adds an exact zero. So deterministic
// forwards may use this kernel, like the float32 kernel.
#pragma once

#include "tessera/ops/attention/own_attention.cuh"
#include "tessera/ops/cuda/async_copy.cuh"
#include "tessera/ops/cuda/online_softmax.cuh"
#include "tessera/ops/cuda/tensor_core.cuh"

namespace tessera::own_attention {

inline constexpr int kFloat8Warps = 8;
inline constexpr int kFloat8Rows = kFloat8Warps * 16;
static_assert(kFloat8Warps * cuda::kWarp == kThreads, "launched as the float32 kernel");
inline constexpr int kLoadElements = 16;  // elements of one load of 16 bytes

template <int kDim>
inline constexpr int kFloat8Keys = kDim <= 128 ? 64 : 32;

// Shared memory of a block: at most 96 KiB, which every supported architecture has.
template <class T, int kDim>
struct Float8Shared {
  cuda::PermutedRows<T, kFloat8Rows, kDim / 8> q;
  cuda::PermutedRows<T, kFloat8Keys<kDim>, kDim / 8> keys;
  cuda::PermutedRows<T, kFloat8Keys<kDim>, kDim / 8> values;
};

// The keys that a block processes, in tiles that begin at multiples of kFloat8Keys.
struct Float8Range {
  int begin;
  int end;
};

template <int kDim>
__device__ inline Float8Range range_of(const Problem& p, const Rows& rows, int split) {
  constexpr int kKeys = kFloat8Keys<kDim>;
  const int first = rows.offset + rows.row_begin / p.group;
  const int seen = rows.offset + (rows.row_begin + rows.rows - 1) / p.group + 1;
  const int begin = p.window > 0 ? max(0, first - p.window + 1) : 0;
  const int range = ceil_div(ceil_div(seen - begin, p.splits), kKeys) * kKeys;
  return {begin + split * range, min(seen, begin + (split + 1) * range)};
}

// The keys and values of a tile that one thread loads to registers and then stores to shared memory.
template <class T, int kDim>
class Float8Tile {
 public:
  static constexpr int kKeys = kFloat8Keys<kDim>;

  // Loads the thread's keys and values. Keys and values outside the range become zeros, so that a weight of zero never
  // multiplies NaN.
  __device__ void load(const Problem& p, const int* pages, int kv_head, int first, const Float8Range& range) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int key = first + index(i) / kLoadsOfKey;
      keys_[i] = values_[i] = uint4{};
      if (key < range.begin || key >= range.end) continue;
      const std::int64_t slot = static_cast<std::int64_t>(pages[key / p.page_size]) * p.page_size + key % p.page_size;
      const std::int64_t at = (slot * p.kv_heads + kv_head) * kDim + index(i) % kLoadsOfKey * kLoadElements;
      keys_[i] = *reinterpret_cast<const uint4*>(static_cast<const unsigned char*>(p.k_cache) + at);
      values_[i] = *reinterpret_cast<const uint4*>(static_cast<const unsigned char*>(p.v_cache) + at);
    }
  }

  __device__ void store(Float8Shared<T, kDim>& shared) const {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      widen(keys_[i], shared.keys, i);
      widen(values_[i], shared.values, i);
    }
  }

 private:
  static constexpr int kLoadsOfKey = kDim / kLoadElements;
  static constexpr int kLoads = kKeys * kLoadsOfKey / kThreads;
  static_assert(kKeys * kLoadsOfKey % kThreads == 0);

  __device__ static int index(int i) { return static_cast<int>(threadIdx.x) + i * kThreads; }

  // Converts 16 elements of E4M3 to the queries' type, and writes them as two packs of eight.
  template <class Rows>
  __device__ static void widen(const uint4& bytes, Rows& rows, int i) {
    const int key = index(i) / kLoadsOfKey;
    const int pack = index(i) % kLoadsOfKey * 2;
    const auto two = [](std::uint32_t word) { return uint2{cuda::widen_two<T>(word), cuda::widen_two<T>(word >> 16)}; };
    const uint2 a = two(bytes.x);
    const uint2 b = two(bytes.y);
    const uint2 c = two(bytes.z);
    const uint2 d = two(bytes.w);
    *reinterpret_cast<uint4*>(rows.pack(key, pack)) = uint4{a.x, a.y, b.x, b.y};
    *reinterpret_cast<uint4*>(rows.pack(key, pack + 1)) = uint4{c.x, c.y, d.x, d.y};
  }

  uint4 keys_[kLoads];
  uint4 values_[kLoads];
};

// Copies the queries to shared memory. Rows past the tile's last row become zeros.
template <class T, int kDim>
__device__ inline void copy_queries(const Problem& p, const Rows& rows, int kv_head, Float8Shared<T, kDim>& shared) {
  constexpr int kPacks = kDim / 8;
  for (int i = static_cast<int>(threadIdx.x); i < kFloat8Rows * kPacks; i += kThreads) {
    const int row = i / kPacks;
    const bool real = row < rows.rows;
    const int at = rows.row_begin + row;
    const std::int64_t token = rows.query_start + at / p.group;
    const std::int64_t head = token * p.heads + kv_head * p.group + at % p.group;
    cuda::copy_async(shared.q.pack(row, i % kPacks),
                     static_cast<const T*>(p.q) + (real ? head * kDim + i % kPacks * 8 : 0), real);
  }
  cuda::commit_copies();
}

// The sums of one warp's 16 rows. Lane l has rows l / 4 and l / 4 + 8.
template <int kDim>
struct Float8Sums {
  float out[kDim / 8][4] = {};
  cuda::OnlineSoftmax<cuda::BaseTwo> rows[2];  // running max over all keys, and sum of weights over this lane's keys
};

template <class T, int kDim>
__device__ inline void multiply_keys(const Float8Shared<T, kDim>& shared, int first_row,
                                     float (&score)[kFloat8Keys<kDim> / 8][4]) {
  auto& tile = const_cast<Float8Shared<T, kDim>&>(shared);
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
#pragma unroll
  for (int d = 0; d < kDim / 16; ++d) {
    std::uint32_t q[4];
    cuda::load_matrices<false>(q, tile.q.pack(first_row + lane % 16, d * 2 + lane / 16));
#pragma unroll
    for (int n = 0; n < kFloat8Keys<kDim> / 16; ++n) {
      std::uint32_t k[4];
      cuda::load_matrices<false>(k, tile.keys.pack(n * 16 + lane / 16 * 8 + lane % 8, d * 2 + lane / 8 % 2));
      cuda::multiply_tile<T>(score[2 * n], q, k[0], k[1]);
      cuda::multiply_tile<T>(score[2 * n + 1], q, k[2], k[3]);
    }
  }
}

// Turns scores into weights, and rescales the sums so far to the new running maxima.
template <int kDim>
__device__ inline void weigh(const Problem& p, const Rows& rows, float scale, int first_row, int first,
                             const Float8Range& range, float (&score)[kFloat8Keys<kDim> / 8][4],
                             Float8Sums<kDim>& sums) {
  constexpr float kLog2E = 1.4426950408889634f;
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int position = rows.offset + (rows.row_begin + first_row + lane / 4 + 8 * r) / p.group;
    float most = sums.rows[r].running_max;
#pragma unroll
    for (auto& of_keys : score) {
      const int n = static_cast<int>(&of_keys - score);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float& s = of_keys[2 * r + i];
        const int key = first + n * 8 + lane % 4 * 2 + i;
        const bool hidden =
            key > position || (p.window > 0 && key <= position - p.window) || key < range.begin || key >= range.end;
        s *= scale;
        if (p.softcap > 0) s = p.softcap * kLog2E * tanhf(s);
        if (hidden) s = -INFINITY;
        most = fmaxf(most, s);
      }
    }
    const float shrink = sums.rows[r].template raise<cuda::Keys::kMaybeNone>(cuda::quad_max(most));
#pragma unroll
    for (auto& out : sums.out) {
      out[2 * r] *= shrink;
      out[2 * r + 1] *= shrink;
    }
#pragma unroll
    for (auto& of_keys : score)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float& s = of_keys[2 * r + i];
        s = sums.rows[r].template weight<cuda::Keys::kMaybeNone>(s);
        sums.rows[r].sum += s;
      }
  }
}

template <class T, int kDim>
__device__ inline void add_values(const Float8Shared<T, kDim>& shared, const float (&weight)[kFloat8Keys<kDim> / 8][4],
                                  Float8Sums<kDim>& sums) {
  auto& tile = const_cast<Float8Shared<T, kDim>&>(shared);
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
#pragma unroll
  for (int k = 0; k < kFloat8Keys<kDim> / 16; ++k) {
    const auto& low = weight[2 * k];
    const auto& high = weight[2 * k + 1];
    const std::uint32_t weights[4] = {cuda::pack_two<T>(low[0], low[1]), cuda::pack_two<T>(low[2], low[3]),
                                      cuda::pack_two<T>(high[0], high[1]), cuda::pack_two<T>(high[2], high[3])};
#pragma unroll
    for (int n = 0; n < kDim / 16; ++n) {
      std::uint32_t v[4];
      cuda::load_matrices<true>(v, tile.values.pack(k * 16 + lane % 16, n * 2 + lane / 16));
      cuda::multiply_tile<T>(sums.out[2 * n], weights, v[0], v[1]);
      cuda::multiply_tile<T>(sums.out[2 * n + 1], weights, v[2], v[3]);
    }
  }
}

template <class T, int kDim>
__device__ inline void store_rows(const Problem& p, const Rows& rows, int kv_head, int split, int first_row,
                                  const Float8Sums<kDim>& sums) {
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
  const float value_scale = cuda::scale_or_one(p.scales.values);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    cuda::OnlineSoftmax<cuda::BaseTwo> whole = sums.rows[r];
    whole.sum = cuda::warp_sum(whole.sum, 4);
    const int row = first_row + lane / 4 + 8 * r;
    if (row >= rows.rows) continue;
    const std::int64_t token = rows.query_start + (rows.row_begin + row) / p.group;
    const int head = kv_head * p.group + (rows.row_begin + row) % p.group;
    const std::int64_t at = (p.splits > 1 ? token * p.splits + split : token) * p.heads + head;
    const float factor = whole.inverse() * value_scale;
    if (p.splits > 1 && lane % 4 == 0)
      p.partial_lse[at] = whole.sum > 0 ? whole.running_max + log2f(whole.sum) : -INFINITY;
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      const float low = sums.out[n][2 * r] * factor;
      const float high = sums.out[n][2 * r + 1] * factor;
      const std::int64_t to = at * kDim + n * 8 + lane % 4 * 2;
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
template <class T, int kDim>
__global__ void __launch_bounds__(kThreads, 1) float8_attention(const Problem p) {
  extern __shared__ __align__(128) unsigned char bytes[];
  auto& shared = *reinterpret_cast<Float8Shared<T, kDim>*>(bytes);
  constexpr int kKeys = kFloat8Keys<kDim>;
  constexpr float kLog2E = 1.4426950408889634f;
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
  const int first_row = static_cast<int>(threadIdx.x) / cuda::kWarp * 16;
  const int kv_head = static_cast<int>(blockIdx.y);
  const int split = static_cast<int>(blockIdx.z);
  Rows rows;
  if (!find_rows(p, static_cast<int>(blockIdx.x), kFloat8Rows, rows)) return;
  const int* const pages = p.page_table + static_cast<std::int64_t>(rows.request) * p.max_pages;
  const Float8Range range = range_of<kDim>(p, rows, split);
  // The range of the keys that the warp's rows see. It is empty if the warp has no rows.
  const int last_row = min(first_row + 15, rows.rows - 1);
  const int first_seen = rows.offset + (rows.row_begin + first_row) / p.group - (p.window > 0 ? p.window - 1 : 1 << 30);
  const int last_seen = last_row < first_row ? -1 : rows.offset + (rows.row_begin + last_row) / p.group;

  const float key_scale = p.scale * cuda::scale_or_one(p.scales.keys);
  const float scale = p.softcap > 0 ? key_scale / p.softcap : key_scale * kLog2E;
  Float8Sums<kDim> sums;
  if (p.sinks != nullptr && split == 0) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = rows.row_begin + first_row + lane / 4 + 8 * r;
      sums.rows[r].running_max = p.sinks[kv_head * p.group + row % p.group] * kLog2E;
      sums.rows[r].sum = lane % 4 == 0 ? 1.0f : 0.0f;
    }
  }
  copy_queries<T, kDim>(p, rows, kv_head, shared);
  Float8Tile<T, kDim> tile;
  int first = range.begin / kKeys * kKeys;
  tile.load(p, pages, kv_head, first, range);
  cuda::wait_for_copies<0>();
  for (; first < range.end; first += kKeys) {
    __syncthreads();  // all warps have used the previous tile
    tile.store(shared);
    if (first + kKeys < range.end) tile.load(p, pages, kv_head, first + kKeys, range);
    __syncthreads();
    if (first > last_seen || first + kKeys <= first_seen) continue;
    float score[kKeys / 8][4] = {};
    multiply_keys<T, kDim>(shared, first_row, score);
    weigh<kDim>(p, rows, scale, first_row, first, range, score, sums);
    add_values<T, kDim>(shared, score, sums);
  }
  store_rows<T, kDim>(p, rows, kv_head, split, first_row, sums);
}

}  // namespace tessera::own_attention
