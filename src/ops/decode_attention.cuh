// Attention of decode steps of few requests, where a step is a chain of short kernels and each must begin its loads
// early. It runs the same plan as FA2's decode kernel (BlockPlan): a block has a chunk of one request's keys and one KV
// head, whose query heads are the rows of a tensor-core tile.
//
// Lists, lengths and page tables are copied to the device before a forward, and all keys but the last were written by
// earlier forwards. Every forward begins with launches that wait for all work before them. So a block loads its first
// two tiles, but for the newest key, before it waits for the kernels ahead (cuda_launch.cuh).
#pragma once

#include <cstdint>
#include <type_traits>

#include "tessera/ops/async_copy.cuh"
#include "tessera/ops/chunk_merge.cuh"
#include "tessera/ops/cuda_launch.cuh"
#include "tessera/ops/cuda_math.cuh"
#include "tessera/ops/tensor_core.cuh"

namespace tessera::cuda {

inline constexpr int kDecodeWarps = 4;
inline constexpr int kDecodeTileKeys = kDecodeWarps * 16;
inline constexpr int kDecodeStages = 2;
inline constexpr float kLog2E = 1.44269504088896f;
inline constexpr int kDecodeRows = 16;  // of a tile: query heads of a KV head

template <class T>
struct DecodeAttention {
  const T* q;                      // [rows, heads, head_dim]; row r is request r
  const T* keys;                   // [pages, page_size, kv_heads, head_dim]
  const T* values;                 // the same
  const std::int32_t* page_table;  // [requests, max_pages]
  const std::int32_t* kv_lens;     // [requests], the new key counted
  const std::int32_t* requests;    // [blocks]
  const std::int32_t* chunks;      // [blocks]: of the request
  const std::int32_t* chunk_size;  // [1]: keys; null: all of a request's
  const std::uint8_t* valid;       // [blocks]
  const float* sinks;              // [heads]; null: none
  T* partial_values;               // [parts, heads, head_dim]; null: to merge.out
  float* partial_lse;              // [parts, heads]
  ChunkMerge<T> merge;
  float scale_log2;  // of scores, for powers of two
  int max_pages;
  int page_size;
};

// A tile's keys or values in shared memory, rows of 16-byte packs. The packs of a row are permuted by its number, so
// that eight rows at one column lie in different banks.
template <class T, int kHeadDim>
struct DecodeTile {
  static constexpr int kPacks = kHeadDim / kPackSize<T>;
  Pack<T, kPackSize<T>> at[kDecodeTileKeys * kPacks];
  __device__ Pack<T, kPackSize<T>>* pack(int key, int column) { return at + key * kPacks + (column ^ (key & 7)); }
};
template <class T, int kHeadDim>
struct DecodeShared {
  union {
    struct {
      DecodeTile<T, kHeadDim> keys[kDecodeStages];
      DecodeTile<T, kHeadDim> values[kDecodeStages];
    };
    float outputs[kDecodeWarps][kDecodeRows][kHeadDim + 4];  // after the last tile
  };
  float greatest[kDecodeWarps][kDecodeRows];
  float sums[kDecodeWarps][kDecodeRows];
};

template <class T, int kHeadDim>
__global__ void __launch_bounds__(kDecodeWarps* kWarp) decode_attention(const __grid_constant__ DecodeAttention<T> p) {
  extern __shared__ __align__(128) unsigned char shared_bytes[];
  auto& shared = *reinterpret_cast<DecodeShared<T, kHeadDim>*>(shared_bytes);
  constexpr int kPacks = kHeadDim / kPackSize<T>;
  constexpr int kKeysAtOnce = kDecodeWarps * kWarp / kPacks;  // that the block's threads load
  const int thread = static_cast<int>(threadIdx.x + threadIdx.y * kWarp);
  const int lane = static_cast<int>(threadIdx.x);
  const int warp = static_cast<int>(threadIdx.y);
  const int block = static_cast<int>(blockIdx.x);
  const int kv_head = static_cast<int>(blockIdx.y);
  let_next_begin();
  if (!p.valid[block]) return;
  const int row = p.requests[block];
  const int kv_len = p.kv_lens[row];
  const int size = p.chunk_size != nullptr ? *p.chunk_size : kv_len;
  const int chunk = p.chunks[block];
  const int begin = min(chunk * size, kv_len);
  const int end = min(begin + size, kv_len);
  const int newest = kv_len - 1;
  const int tiles = (end - begin + kDecodeTileKeys - 1) / kDecodeTileKeys;
  const std::int32_t* pages = p.page_table + static_cast<std::int64_t>(row) * p.max_pages;
  const int column = thread % kPacks;
  const auto place = [&](int key) {
    const std::int64_t slot = static_cast<std::int64_t>(pages[key / p.page_size]) * p.page_size + key % p.page_size;
    return (slot * p.merge.kv_heads + kv_head) * kHeadDim + column * kPackSize<T>;
  };
  // Past the end zeros, so that no value that is multiplied by 0 is NaN. `without`: a key that is left out.
  const auto load_tile = [&](int tile, int without) {
    if (tile < tiles) {
      const int stage = tile % kDecodeStages;
#pragma unroll
      for (int i = 0; i < kDecodeTileKeys / kKeysAtOnce; ++i) {
        const int at = i * kKeysAtOnce + thread / kPacks;
        const int key = begin + tile * kDecodeTileKeys + at;
        if (key == without) continue;
        const std::int64_t from = key < end ? place(key) : 0;
        copy_async(shared.keys[stage].pack(at, column), p.keys + from, key < end);
        copy_async(shared.values[stage].pack(at, column), p.values + from, key < end);
      }
    }
    commit_copies();
  };
  load_tile(0, newest);
  load_tile(1, newest);
  wait_for_previous();
  if (const int at = newest - begin; newest < end && at < kDecodeStages * kDecodeTileKeys && thread < kPacks) {
    const std::int64_t from = place(newest);
    const int stage = at / kDecodeTileKeys;
    copy_async(shared.keys[stage].pack(at % kDecodeTileKeys, column), p.keys + from, true);
    copy_async(shared.values[stage].pack(at % kDecodeTileKeys, column), p.values + from, true);
  }
  commit_copies();

  const int group = p.merge.heads / p.merge.kv_heads;
  const int quad = lane / 4;
  const int in_quad = lane % 4;
  std::uint32_t q[kHeadDim / 16][4];
  const auto query = [&](int head, int dim) -> std::uint32_t {
    if (head >= group) return 0;
    const std::int64_t at = static_cast<std::int64_t>(row) * p.merge.heads + kv_head * group + head;
    return *reinterpret_cast<const std::uint32_t*>(p.q + at * kHeadDim + dim);
  };
#pragma unroll
  for (int d = 0; d < kHeadDim / 16; ++d) {
    q[d][0] = query(quad, d * 16 + in_quad * 2);
    q[d][1] = query(quad + 8, d * 16 + in_quad * 2);
    q[d][2] = query(quad, d * 16 + in_quad * 2 + 8);
    q[d][3] = query(quad + 8, d * 16 + in_quad * 2 + 8);
  }

  float out[kHeadDim / 8][4] = {};
  float greatest[2] = {-INFINITY, -INFINITY};  // of rows `quad` and `quad + 8`
  float sum[2] = {};                           // of one lane; the quad's are added at the end
  // A sink is a key whose value is zero. The first warp of a request's first chunk has it: chunks and warps are joined
  // by sums that count it.
  if (p.sinks != nullptr && chunk == 0 && warp == 0) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (quad + 8 * r >= group) continue;
      greatest[r] = p.sinks[kv_head * group + quad + 8 * r] * kLog2E;
      sum[r] = in_quad == 0 ? 1.0f : 0.0f;
    }
  }
  for (int tile = 0; tile < tiles; ++tile) {
    if (tile == 0) {
      wait_for_copies<0>();
    } else {
      wait_for_copies<1>();
    }
    __syncthreads();
    const int stage = tile % kDecodeStages;
    const int first = warp * 16;  // of the warp's keys in the tile
    float score[2][4] = {};
#pragma unroll
    for (int d = 0; d < kHeadDim / 16; ++d) {
      std::uint32_t k[4];
      load_matrices<false>(k, shared.keys[stage].pack(first + lane / 16 * 8 + lane % 8, d * 2 + lane / 8 % 2));
      multiply_tile<T>(score[0], q[d], k[0], k[1]);
      multiply_tile<T>(score[1], q[d], k[2], k[3]);
    }
    const int left = end - begin - tile * kDecodeTileKeys - first;  // keys from the warp's first on
    float tile_greatest[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        score[n][i] = n * 8 + in_quad * 2 + i % 2 < left ? score[n][i] * p.scale_log2 : -INFINITY;
        tile_greatest[i / 2] = fmaxf(tile_greatest[i / 2], score[n][i]);
      }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      tile_greatest[r] = fmaxf(tile_greatest[r], __shfl_xor_sync(0xffffffffu, tile_greatest[r], 1));
      tile_greatest[r] = fmaxf(tile_greatest[r], __shfl_xor_sync(0xffffffffu, tile_greatest[r], 2));
      const float now = fmaxf(greatest[r], tile_greatest[r]);
      // Until a warp has had a key, there is nothing to scale.
      const float scale = now == -INFINITY ? 1.0f : exp2f(greatest[r] - now);
      greatest[r] = now;
      sum[r] *= scale;
#pragma unroll
      for (int n = 0; n < kHeadDim / 8; ++n) {
        out[n][2 * r] *= scale;
        out[n][2 * r + 1] *= scale;
      }
    }
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        score[n][i] = score[n][i] == -INFINITY ? 0.0f : exp2f(score[n][i] - greatest[i / 2]);
        sum[i / 2] += score[n][i];
      }
    const std::uint32_t weights[4] = {pack_two<T>(score[0][0], score[0][1]), pack_two<T>(score[0][2], score[0][3]),
                                      pack_two<T>(score[1][0], score[1][1]), pack_two<T>(score[1][2], score[1][3])};
#pragma unroll
    for (int d = 0; d < kHeadDim / 16; ++d) {
      std::uint32_t v[4];
      load_matrices<true>(v, shared.values[stage].pack(first + lane % 16, d * 2 + lane / 16));
      multiply_tile<T>(out[2 * d], weights, v[0], v[1]);
      multiply_tile<T>(out[2 * d + 1], weights, v[2], v[3]);
    }
    __syncthreads();
    load_tile(tile + kDecodeStages, -1);
  }

  // The warps' parts of the chunk. Rows past the group are computed from zeros and not used.
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], 1);
    sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], 2);
    if (in_quad == 0) {
      shared.greatest[warp][quad + 8 * r] = greatest[r];
      shared.sums[warp][quad + 8 * r] = sum[r];
    }
  }
#pragma unroll
  for (int n = 0; n < kHeadDim / 8; ++n)
#pragma unroll
    for (int r = 0; r < 2; ++r)
      if (quad + 8 * r < group)
        *reinterpret_cast<float2*>(&shared.outputs[warp][quad + 8 * r][n * 8 + in_quad * 2]) =
            make_float2(out[n][2 * r], out[n][2 * r + 1]);
  __syncthreads();
  const bool split = p.partial_values != nullptr;
  const std::int64_t part = split ? p.merge.part_starts[row] + chunk : row;
  T* const to = split ? p.partial_values : p.merge.out;
  for (int i = thread; i < group * kHeadDim / 2; i += kDecodeWarps * kWarp) {
    const int head = i / (kHeadDim / 2);
    const int dim = i % (kHeadDim / 2) * 2;
    float most = shared.greatest[0][head];
    for (int w = 1; w < kDecodeWarps; ++w) most = fmaxf(most, shared.greatest[w][head]);
    float low = 0;
    float high = 0;
    float total = 0;
    for (int w = 0; w < kDecodeWarps; ++w) {
      const float weight = exp2f(shared.greatest[w][head] - most);
      const float2 x = *reinterpret_cast<const float2*>(&shared.outputs[w][head][dim]);
      low += weight * x.x;
      high += weight * x.y;
      total += weight * shared.sums[w][head];
    }
    const std::int64_t at = part * p.merge.heads + kv_head * group + head;
    *reinterpret_cast<std::uint32_t*>(to + at * kHeadDim + dim) = pack_two<T>(low / total, high / total);
    if (split && dim == 0) p.partial_lse[at] = log2f(total) + most;
  }
  if (split) merge_if_last<T, kHeadDim>(p.merge, row, kv_head);
}

}  // namespace tessera::cuda
