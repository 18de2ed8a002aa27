// Computes the attention of a decoder layer, within the launch of all layers (decoder_layers.cuh): the head norms, the
// rotation, the store of the newest key, and attention itself. A block has one KV head and a range of the keys of all
// requests (Share). The blocks of a KV head exchange their partial results, and each block merges the partial results
// for some of the outputs.
//
// A warp processes eight keys of a tile of 64. A lane has four elements of each query, key and output.
#pragma once

#include <cstdint>

#include "tessera/ops/cuda/cuda_math.cuh"
#include "tessera/ops/cuda/cuda_norm.cuh"
#include "tessera/ops/cuda/online_softmax.cuh"
#include "tessera/ops/cuda/weight_ring.cuh"
#include "tessera/ops/layers/tagged_words.cuh"

namespace tessera::cuda::decoder_layers {

inline constexpr int kBlocks = 128;
inline constexpr int kShares = 16;  // number of blocks for each KV head
inline constexpr int kGroup = 2;    // number of query heads for each KV head
inline constexpr int kWarpKeys = kTileKeys / kWarps;
inline constexpr float kLog2E = 1.44269504088896f;

// A range of tiles of a request's keys.
struct Tiles {
  int first;
  int last;  // one past the last tile
};

// The keys of one block, as a range of tiles. The tiles of all requests, one request after another, are cut into 16
// equal ranges.
template <int kRows>
class Share {
 public:
  int kv_head;
  int index;  // the block's index among the blocks of its KV head

  __device__ Share(const Requests& requests, int block) : kv_head(block / kShares), index(block % kShares) {
    starts_[0] = 0;
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      starts_[r + 1] = starts_[r] + (r < requests.rows ? (requests.length(r) + kTileKeys - 1) / kTileKeys : 0);
    size_ = max(1, (starts_[kRows] + kShares - 1) / kShares);
    first_ = min(index * size_, starts_[kRows]);
    last_ = min(first_ + size_, starts_[kRows]);
  }
  __device__ Tiles tiles_of(int request) const {
    const Tiles all = range_of(request);
    return {max(first_, all.first) - all.first, min(last_, all.last) - all.first};
  }
  // Returns the range of the KV head's blocks that have tiles of the request.
  __device__ Tiles blocks_of(int request) const {
    const Tiles all = range_of(request);
    return {all.first / size_, all.first == all.last ? all.first / size_ : (all.last - 1) / size_ + 1};
  }
  // Calls f(request, tile, is_first) for the block's tiles in order. `is_first` is true for the block's first tile.
  template <class F>
  __device__ void for_each_tile(const Requests& requests, F&& f) const {
    for (int request = 0; request < requests.rows; ++request) {
      const Tiles tiles = tiles_of(request);
      for (int tile = tiles.first; tile < tiles.last; ++tile)
        f(request, tile, range_of(request).first + tile == first_);
    }
  }

 private:
  __device__ Tiles range_of(int request) const {
    Tiles range{};
#pragma unroll
    for (int r = 0; r < kRows; ++r)  // a constant index keeps the array in registers
      if (r == request) range = {starts_[r], starts_[r + 1]};
    return range;
  }

  int starts_[kRows + 1];  // first tile of each request
  int size_;
  int first_;
  int last_;
};

// The partial result of each warp of a block: unnormalised outputs, running max, and sum of exponentials.
struct AttentionSums {
  float outputs[kWarps][kGroup][kHeadDim];
  float running_max[kWarps][kGroup];
  float sums[kWarps][kGroup];
};

// The cosines and sines that rotate a lane's elements.
struct Rotation {
  float cosines[4];
  float sines[4];
  __device__ explicit Rotation(const float* table) {
    const int pair = static_cast<int>(threadIdx.x) % kWarp * 4 % (kHeadDim / 2);  // index of the lane's first pair
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      cosines[i] = table[pair + i];
      sines[i] = table[kHeadDim / 2 + pair + i];
    }
  }
};

// Applies a head's norm and rotation. `weight` is in shared memory.
__device__ inline void normalise_and_rotate(float (&x)[4], const unsigned char* weight, const Rotation& r, float eps) {
  using T = __nv_bfloat16;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const float squares = warp_sum(x[0] * x[0] + x[1] * x[1] + x[2] * x[2] + x[3] * x[3]);
  const float scale = rms_scale(squares, kHeadDim, eps);
  const auto w = *reinterpret_cast<const Pack<T, 4>*>(weight + lane * 8);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    x[i] = rounded<T>(rounded<T>(x[i] * scale) * to_float(w.at[i]));
    const float other = __shfl_xor_sync(0xffffffffu, x[i], kWarp / 2);
    const float turned = other * r.sines[i];
    x[i] = rounded<T>(x[i] * r.cosines[i] + (lane < kWarp / 2 ? -turned : turned));
  }
}

__device__ inline void store_four(__nv_bfloat16* to, const float (&x)[4]) {
  *reinterpret_cast<uint2*>(to) = make_uint2(pack_values(x[0], x[1]), pack_values(x[2], x[3]));
}
// Reads a lane's values of a key from a tile. The copy engine has swizzled the tile's 16-byte chunks within every 128
// bytes.
__device__ inline void read_four(const unsigned char* tile, int key, float (&x)[4]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int row = key * 2 + lane / 16;  // index of a row of 128 bytes in the tile
  const int chunk = lane % 16 / 2 ^ row % 8;
  const uint2 words = *reinterpret_cast<const uint2*>(tile + row * 128 + chunk * 16 + lane % 2 * 8);
  const float2 low = unpack_values(words.x);
  const float2 high = unpack_values(words.y);
  x[0] = low.x;
  x[1] = low.y;
  x[2] = high.x;
  x[3] = high.y;
}

// Computes 16 sums over the warp's lanes. The sum of `x[j]` goes to lanes 2j and 2j + 1.
__device__ inline float spread_sums(float (&x)[16]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const auto halve = [&]<int kHalf>() {
    const bool upper = (lane & (2 * kHalf)) != 0;
#pragma unroll
    for (int j = 0; j < kHalf; ++j) {
      const float give = upper ? x[j] : x[j + kHalf];
      const float keep = upper ? x[j + kHalf] : x[j];
      x[j] = keep + __shfl_xor_sync(0xffffffffu, give, 2 * kHalf);
    }
  };
  halve.template operator()<8>();
  halve.template operator()<4>();
  halve.template operator()<2>();
  halve.template operator()<1>();
  return x[0] + __shfl_xor_sync(0xffffffffu, x[0], 1);
}

// Combines the x of the warp's eight keys, separately for each head. A head has 16 lanes: two neighbouring lanes for
// each of the eight keys. f combines two values.
template <class F>
__device__ inline float over_keys(float x, F&& f) {
#pragma unroll
  for (int step = 2; step <= 8; step *= 2) x = f(x, __shfl_xor_sync(0xffffffffu, x, step));
  return x;
}

// Attends to this warp's keys in the request's tiles, which arrive through the ring, and stores the results in this
// warp's part of `sums`. The warp with the newest key stores that key and its value in the cache. `words` holds the
// results of the qkv product. `head_norms` holds the weights of both head norms, which arrive with the block's first
// tile.
template <class S, int kSlots>
__device__ inline void attend(const Requests& r, int request, Tiles tiles, int kv_head, const TaggedWord* words,
                              std::uint32_t tag, __nv_bfloat16* keys, __nv_bfloat16* values,
                              const unsigned char (&head_norms)[2][kKeyBytes], WeightRing<kSlots>& ring,
                              AttentionSums& sums) {
  static_assert(kGroup * kWarpKeys == 16 && kHeadDim == 4 * kWarp);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int newest = r.length(request) - 1;
  const Rotation rotation(r.table + request * kHeadDim);
  const auto place = [&](int head) { return words + (request * S::kQkv + head * kHeadDim) / 2 + lane * 2; };
  const int newest_tile = newest / kTileKeys;
  const bool has_newest =
      newest_tile >= tiles.first && newest_tile < tiles.last && newest % kTileKeys / kWarpKeys == warp;
  // The group's queries, the newest key and its value. If the warp does not have the newest key, queries are loaded in
  // place of the key and its value.
  float heads[kGroup + 2][4];
  wait_for_fours<kGroup + 2>(
      {place(kv_head * kGroup), place(kv_head * kGroup + 1), place(has_newest ? S::kHeads + kv_head : kv_head * kGroup),
       place(has_newest ? S::kHeads + S::kKvHeads + kv_head : kv_head * kGroup + 1)},
      tag, heads);
  __syncwarp();
  float(&newest_key)[4] = heads[kGroup];
  float(&newest_value)[4] = heads[kGroup + 1];
  ring.wait();
  float q[kGroup][4];
#pragma unroll
  for (int h = 0; h < kGroup; ++h) {
    normalise_and_rotate(heads[h], head_norms[0], rotation, r.qk_eps);
#pragma unroll
    for (int i = 0; i < 4; ++i) q[h][i] = heads[h][i] * r.scale_log2;
  }
  if (has_newest) {
    normalise_and_rotate(newest_key, head_norms[1], rotation, r.qk_eps);
    if (const std::int64_t slot = r.slots[request]; slot >= 0 && slot < r.num_slots) {
      const std::int64_t to = (slot * S::kKvHeads + kv_head) * kHeadDim + lane * 4;
      store_four(keys + to, newest_key);
      store_four(values + to, newest_value);
    }
  }

  OnlineSoftmax<BaseTwo> row;  // the softmax of head number lane / 16; the two lanes of a key have equal sums
  float out[kGroup][4] = {};
  for (int tile = tiles.first; tile < tiles.last; ++tile) {
    const int first = tile * kTileKeys + warp * kWarpKeys;
    float scores[16];
    ring.wait();
#pragma unroll
    for (int i = 0; i < kWarpKeys; ++i) {
      float key[4];
      read_four(ring.stage(), warp * kWarpKeys + i, key);
      const bool is_newest = first + i == newest;
#pragma unroll
      for (int h = 0; h < kGroup; ++h) {
        float score = 0;
#pragma unroll
        for (int j = 0; j < 4; ++j) score += q[h][j] * (is_newest ? newest_key[j] : key[j]);
        scores[h * kWarpKeys + i] = score;
      }
    }
    ring.release();
    float score = spread_sums(scores);
    if (first + lane / 2 % kWarpKeys > newest) score = -INFINITY;
    const float now = fmaxf(row.running_max, over_keys(score, [](float a, float b) { return fmaxf(a, b); }));
    const float scale = row.raise<Keys::kMaybeNone>(now);
    const float weight = row.weight<Keys::kMaybeNone>(score);
    row.sum += weight;
#pragma unroll
    for (int h = 0; h < kGroup; ++h) {
      const float scale_of_head = __shfl_sync(0xffffffffu, scale, h * 16);
#pragma unroll
      for (int j = 0; j < 4; ++j) out[h][j] *= scale_of_head;
    }
    ring.wait();
#pragma unroll
    for (int i = 0; i < kWarpKeys; ++i) {
      float value[4];
      read_four(ring.stage(), warp * kWarpKeys + i, value);
      const int key = first + i;
#pragma unroll
      for (int j = 0; j < 4; ++j)  // keys past the newest get zero values, because 0 times NaN would be NaN
        value[j] = key == newest ? newest_value[j] : key > newest ? 0.0f : value[j];
#pragma unroll
      for (int h = 0; h < kGroup; ++h) {
        const float w = __shfl_sync(0xffffffffu, weight, h * 16 + i * 2);
#pragma unroll
        for (int j = 0; j < 4; ++j) out[h][j] += w * value[j];
      }
    }
    ring.release();
  }
  const float sum = over_keys(row.sum, [](float a, float b) { return a + b; });
#pragma unroll
  for (int h = 0; h < kGroup; ++h)
    *reinterpret_cast<float4*>(&sums.outputs[warp][h][lane * 4]) =
        make_float4(out[h][0], out[h][1], out[h][2], out[h][3]);
  if (lane % 16 == 0) {
    sums.running_max[warp][lane / 16] = row.running_max;
    sums.sums[warp][lane / 16] = sum;
  }
}

// Stores the block's partial result for the request: each output, and log2 Σ exp of each head. A thread has one output.
__device__ inline void store_part(const AttentionSums& s, TaggedWord* part, TaggedWord* lse, std::uint32_t tag) {
  static_assert(kGroup * kHeadDim == kWarps * kWarp);
  const int head = static_cast<int>(threadIdx.x) / kHeadDim;
  const int dim = static_cast<int>(threadIdx.x) % kHeadDim;
  float most = -INFINITY;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) most = fmaxf(most, s.running_max[w][head]);
  float sum = 0;
  float total = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    const float weight = part_weight<BaseTwo>(s.running_max[w][head], most);
    sum += weight * s.outputs[w][head][dim];
    total += weight * s.sums[w][head];
  }
  store_word(part + threadIdx.x, __float_as_uint(sum / total), tag);
  if (dim == 0) store_word(lse + head, __float_as_uint(most + log2f(total)), tag);
}

// Merges the partial results of the KV head's sixteen blocks. Each block computes a sixteenth of the merged outputs.
// Sixteen lanes work on an output, and each lane reads the partial result of one block.
template <class S, int kRows>
__device__ inline void join_parts(const Share<kRows>& share, int rows, const TaggedWord* parts, const TaggedWord* lse,
                                  TaggedWord* to, std::uint32_t tag) {
  constexpr int kOutputs = kGroup * kHeadDim;  // number of outputs of a request in a KV head
  const int thread = static_cast<int>(threadIdx.x);
  float value[kRows];
  float weight[kRows];            // log2 of the partial result's weight
  const TaggedWord* from[kRows];  // null: the lane has no part
  const TaggedWord* lse_from[kRows] = {};
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    value[i] = 0;
    weight[i] = -INFINITY;
    from[i] = nullptr;
    if (i >= rows) continue;
    // This output's index among the KV head's outputs for all requests.
    const int output = (share.index * rows + i) * kShares + thread / kShares;
    const int request = output / kOutputs;
    const Tiles blocks = share.blocks_of(request);
    const int block = blocks.first + thread % kShares;
    if (block >= blocks.last) continue;
    const int part = (request * S::kKvHeads + share.kv_head) * kShares + block;
    from[i] = parts + part * kOutputs + output % kOutputs;
    lse_from[i] = lse + part * kGroup + output % kOutputs / kHeadDim;
  }
  std::uint32_t wrong;
  do {
    wrong = 0;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      if (from[i] == nullptr) continue;
      const TaggedWord v = load_word(from[i]);
      const TaggedWord w = load_word(lse_from[i]);
      wrong |= (tag_of(v) ^ tag) | (tag_of(w) ^ tag);
      value[i] = __uint_as_float(payload_of(v));
      weight[i] = __uint_as_float(payload_of(w));
    }
  } while (wrong != 0);
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    if (i >= rows) break;
    const float most = warp_max(weight[i], kShares);
    const float scale = part_weight<BaseTwo, Keys::kMaybeNone>(weight[i], most);
    const float total = warp_sum(scale, kShares);
    const float sum = warp_sum(scale * value[i], kShares);
    const float y = total > 0 ? sum / total : 0.0f;  // a padding row has no keys
    const float next = __shfl_down_sync(0xffffffffu, y, kShares);
    const int output = (share.index * rows + i) * kShares + thread / kShares;
    const int at = output / kOutputs * S::kAttention + share.kv_head * kOutputs + output % kOutputs;
    if (thread % kWarp == 0) store_word(to + at / 2, pack_values(y, next), tag);
  }
}

}  // namespace tessera::cuda::decoder_layers
