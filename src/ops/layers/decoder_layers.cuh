// Runs all layers of a small model's decode step in one launch, for few requests.
//
// Reading the weights of one layer of such a model takes less time than launching the layer's kernels one after
// another. Here 128 blocks, one on each multiprocessor, compute all layers. The weights and keys that a block reads are
// known from the start. One warp loads them in order into a ring in shared memory (weight_ring.cuh), nearly a layer
// ahead of the products. Blocks exchange values as tagged words (tagged_words.cuh). A layer has six exchanges, which
// are the arrows here. "stream" is the residual stream, and "o" is the output projection:
//
//   stream ─▶ qkv ─▶ attention over a block's keys ─▶ attention over all keys ─▶ o + stream ─▶ gate and up
//     ─▶ down + stream
//
// Block b has n / 128 rows of each matrix of n rows, from row b · n / 128 on. Gate and up count as two matrices here.
// The matrices o and down have 1024 rows, so block b owns columns 8b … 8b + 7 of the residual stream, and keeps them in
// registers. Each KV head has 16 blocks, which share the keys of all requests evenly, in tiles of 64. If a norm
// precedes a product, the norm's input x is multiplied by the norm's weight before the product, and the result of the
// product is multiplied by 1/rms(x) (layer_products.cuh). Except for that, values are rounded where the operators' own
// kernels round them.
#pragma once

#include <cstdint>

#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/layers/layer_attention.cuh"
#include "tessera/ops/layers/layer_products.cuh"

namespace tessera::cuda::decoder_layers {

inline constexpr int kMostLayers = 32;
inline constexpr std::uint32_t kTagsOfStep = 64;  // tags reserved for a step, which uses num_layers + 1 of them

struct LayerWeights {
  const __nv_bfloat16* attention_norm;  // [hidden]
  const __nv_bfloat16* qkv;             // [(heads + 2 · kv_heads) · head_dim, hidden]
  const __nv_bfloat16* q_norm;          // [head_dim]
  const __nv_bfloat16* k_norm;          // [head_dim]
  const __nv_bfloat16* o;               // [hidden, heads · head_dim]
  const __nv_bfloat16* mlp_norm;        // [hidden]
  const __nv_bfloat16* gate_up;         // [2 · inner, hidden]: gate rows, then up rows
  const __nv_bfloat16* down;            // [hidden, inner]
  __nv_bfloat16* keys;                  // [slots, kv_heads, head_dim]
  __nv_bfloat16* values;                // like `keys`
  CUtensorMap key_pages;                // boxes of one page and one KV head
  CUtensorMap value_pages;
};

struct Layers {
  LayerWeights layers[kMostLayers];
  const __nv_bfloat16* x;           // [rows, hidden]
  const __nv_bfloat16* final_norm;  // [hidden]
  __nv_bfloat16* normed;            // [rows, hidden]: `sum` after the final norm
  __nv_bfloat16* sum;               // [rows, hidden]: the last layer's residual stream
  Requests requests;
  TaggedWord* words;    // two sets of Words::kTotal words; initially with tags that no step uses
  std::uint32_t* step;  // [1]: number of launches so far, initially 0
  int num_layers;
  float eps;
};

// The sizes of a layer, and their division among 128 blocks.
template <int kHiddenSize, int kHeadCount, int kKvHeadCount, int kInnerSize>
struct LayerShape {
  static constexpr int kHidden = kHiddenSize, kHeads = kHeadCount, kKvHeads = kKvHeadCount, kInner = kInnerSize;
  static constexpr int kAttention = kHeads * kHeadDim;
  static constexpr int kQkv = kAttention + 2 * kKvHeads * kHeadDim;
  static_assert(kHidden == 8 * kBlocks && kHidden == kPartColumns, "a block has eight columns of the stream");
  static_assert(kQkv % (8 * kBlocks) == 0 && kInner % (8 * kBlocks) == 0, "blocks have whole groups of eight rows");
  static_assert(kAttention % kPartColumns == 0 && kInner % kPartColumns == 0, "rows are whole parts");
  static_assert(kHeads == kGroup * kKvHeads && kKvHeads * kShares == kBlocks, "attention's blocks");
  static constexpr int kQkvGroups = kQkv / 8 / kBlocks;  // number of groups of eight rows of qkv in a block
  static constexpr int kGateGroups = kInner / 8 / kBlocks;
};

// The offsets of a layer's values in the tagged words. A word holds two bfloat16 values or, in kPart and kLse, one
// float.
template <class S, int kRows>
struct Words {
  static constexpr int kStream = 0;                                 // [rows, hidden]
  static constexpr int kMiddle = kStream + kRows * S::kHidden / 2;  // the residual stream after attention
  static constexpr int kQkv = kMiddle + kRows * S::kHidden / 2;
  static constexpr int kAttention = kQkv + kRows * S::kQkv / 2;
  static constexpr int kInner = kAttention + kRows * S::kAttention / 2;
  static constexpr int kPart = kInner + kRows * S::kInner / 2;  // [rows, kv_heads, kShares, group · head_dim]
  static constexpr int kLse = kPart + kRows * kBlocks * kGroup * kHeadDim;
  static constexpr int kTotal = kLse + kRows * kBlocks * kGroup;
};

inline constexpr int kSlots = 11;  // number of slots in the ring
// The shared memory after the ring.
template <int kRows>
struct LayerShared {
  unsigned char norms[2][2][kPartColumns * 2];  // for even and odd layers: the norms before qkv and before gate and up
  unsigned char head_norms[2][2][kHeadDim * 2];
  union {
    ProductSums<kRows> products;
    AttentionSums attention;
  } sums[2];  // consecutive products and attentions use the two in turn
  SharedBarrier full[kSlots], empty[kSlots];
};
template <int kRows>
inline constexpr std::size_t kSharedBytes = kSlots* kSlotBytes + sizeof(LayerShared<kRows>);

// Fills the ring. One warp runs it and loads the weights and keys in the order in which the other warps multiply them.
template <class S, int kRows>
__device__ inline void fill_ring(const Layers& p, const Share<kRows>& share, WeightRing<kSlots>& ring,
                                 LayerShared<kRows>& shared) {
  const int block = static_cast<int>(blockIdx.x);
  let_copies_see_stores();  // the ring copies keys and values that earlier forwards stored
  for (int l = 0; l < p.num_layers; ++l) {
    const LayerWeights& w = p.layers[l];
    prefetch_map(w.key_pages);
    prefetch_map(w.value_pages);
    auto& norms = shared.norms[l % 2];
    auto& head_norms = shared.head_norms[l % 2];
    for (int g = 0; g < S::kQkvGroups; ++g)
      ring.ask(w.qkv, S::kHidden, (block * S::kQkvGroups + g) * 8, 0, g == 0 ? w.attention_norm : nullptr, norms[0]);
    share.for_each_tile(p.requests, [&](int request, int tile, bool is_first) {
      ring.ask_keys(w.key_pages, p.requests, request, tile, share.kv_head, w.q_norm, w.k_norm,
                    is_first ? head_norms : nullptr);
      ring.ask_keys(w.value_pages, p.requests, request, tile, share.kv_head, nullptr, nullptr, nullptr);
    });
    for (int c = 0; c < S::kAttention / kPartColumns; ++c)
      ring.ask(w.o, S::kAttention, block * 8, c * kPartColumns, nullptr, nullptr);
    for (int g = 0; g < 2 * S::kGateGroups; ++g) {
      const int row = g / S::kGateGroups * S::kInner + (block * S::kGateGroups + g % S::kGateGroups) * 8;
      ring.ask(w.gate_up, S::kHidden, row, 0, g == 0 ? w.mlp_norm : nullptr, norms[1]);
    }
    for (int c = 0; c < S::kInner / kPartColumns; ++c)
      ring.ask(w.down, S::kInner, block * 8, c * kPartColumns, nullptr, nullptr);
  }
}

template <class S, int kRows>
__global__ void __launch_bounds__((kWarps + 1) * kWarp, 1) decoder_layers(const __grid_constant__ Layers p) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  auto& shared = *reinterpret_cast<LayerShared<kRows>*>(shared_bytes + kSlots * kSlotBytes);
  using W = Words<S, kRows>;
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarp;
  const int block = static_cast<int>(blockIdx.x);
  const int rows = p.requests.rows;
  WeightRing<kSlots> ring{.memory = shared_bytes, .full = shared.full, .empty = shared.empty};
  if (thread == kWarps * kWarp) ring.begin();
  const Share<kRows> share(p.requests, block);
  __syncthreads();
  if (warp == kWarps) {
    fill_ring<S, kRows>(p, share, ring, shared);
    return;
  }

  wait_for_previous();
  const std::uint32_t first_tag = *p.step * kTagsOfStep + 1;
  const auto words_of = [&](int layer) { return p.words + layer % 2 * W::kTotal; };
  // A block has eight columns of the stream. Each thread below 4 · rows owns two neighbouring columns of one row.
  const int my_row = thread / 4;
  const int my_pair = thread % 4;
  const int my_column = block * 8 + my_pair * 2;
  const bool owns = thread < rows * 4;
  float2 stream{};
  const auto publish = [&](TaggedWord* words, std::uint32_t tag) {
    store_word(words + (my_row * S::kHidden + my_column) / 2, pack_values(stream.x, stream.y), tag);
  };
  if (owns) {
    stream = unpack_values(*reinterpret_cast<const std::uint32_t*>(p.x + my_row * S::kHidden + my_column));
    publish(words_of(0) + W::kStream, first_tag);
  }
  const auto add_to_stream = [&](float2 y) {
    using T = __nv_bfloat16;
    stream = make_float2(rounded<T>(stream.x + rounded<T>(y.x)), rounded<T>(stream.y + rounded<T>(y.y)));
  };
  int turn = 0;  // index of the element of shared.sums that is used next

  for (int l = 0; l < p.num_layers; ++l) {
    const std::uint32_t tag = first_tag + static_cast<std::uint32_t>(l);
    TaggedWord* const words = words_of(l);
    {
      ProductSums<kRows>& sums = shared.sums[turn].products;
      Operand<1> x(words + W::kStream, rows, tag);
      ring.wait();  // the norm's weight arrives with the first group of rows
      x.normalise(shared.norms[l % 2][0], sums);
      x.template multiply<S::kQkvGroups>(ring, sums);
      sync_multiplying();
      constexpr int kPairs = S::kQkvGroups * 4;
      if (thread < rows * kPairs) {
        const int row = thread / kPairs;
        const int pair = thread % kPairs;
        const float scale = sums.rms(row, S::kHidden, p.eps);
        const float2 y = sums.total(row, pair * 2);
        store_word(words + W::kQkv + row * S::kQkv / 2 + block * kPairs + pair, pack_values(y.x * scale, y.y * scale),
                   tag);
      }
      turn ^= 1;
    }
#pragma unroll 1
    for (int request = 0; request < rows; ++request) {
      const Tiles tiles = share.tiles_of(request);
      if (tiles.first >= tiles.last) continue;
      attend<S>(p.requests, request, tiles, share.kv_head, words + W::kQkv, tag, p.layers[l].keys, p.layers[l].values,
                shared.head_norms[l % 2], ring, shared.sums[turn].attention);
      sync_multiplying();
      const int part = (request * S::kKvHeads + share.kv_head) * kShares + share.index;
      store_part(shared.sums[turn].attention, words + W::kPart + part * kGroup * kHeadDim,
                 words + W::kLse + part * kGroup, tag);
      turn ^= 1;
    }
    join_parts<S>(share, rows, words + W::kPart, words + W::kLse, words + W::kAttention, tag);
    {
      ProductSums<kRows>& sums = shared.sums[turn].products;
      Operand<S::kAttention / kPartColumns> x(words + W::kAttention, rows, tag);
      x.template multiply<1>(ring, sums);
      sync_multiplying();
      if (owns) {
        add_to_stream(sums.total(my_row, my_pair * 2));
        publish(words + W::kMiddle, tag);
      }
      turn ^= 1;
    }
    {
      ProductSums<kRows>& sums = shared.sums[turn].products;
      Operand<1> x(words + W::kMiddle, rows, tag);
      ring.wait();
      x.normalise(shared.norms[l % 2][1], sums);
      x.template multiply<2 * S::kGateGroups>(ring, sums);
      sync_multiplying();
      constexpr int kPairs = S::kGateGroups * 4;
      if (thread < rows * kPairs) {
        const int row = thread / kPairs;
        const int pair = thread % kPairs;
        const float scale = sums.rms(row, S::kHidden, p.eps);
        const float2 gate = sums.total(row, pair * 2);
        const float2 up = sums.total(row, S::kGateGroups * 8 + pair * 2);
        store_word(words + W::kInner + row * S::kInner / 2 + block * kPairs + pair,
                   pack_values(gated(gate.x * scale, up.x * scale), gated(gate.y * scale, up.y * scale)), tag);
      }
      turn ^= 1;
    }
    {
      ProductSums<kRows>& sums = shared.sums[turn].products;
      Operand<S::kInner / kPartColumns> x(words + W::kInner, rows, tag);
      x.template multiply<1>(ring, sums);
      sync_multiplying();
      if (owns) {
        add_to_stream(sums.total(my_row, my_pair * 2));
        publish(words_of(l + 1) + W::kStream, tag + 1);
      }
      turn ^= 1;
    }
  }

  ProductSums<kRows>& sums = shared.sums[turn].products;
  Operand<1>(words_of(p.num_layers) + W::kStream, rows, first_tag + static_cast<std::uint32_t>(p.num_layers))
      .add_squares(sums);
  sync_multiplying();
  if (owns) {
    using T = __nv_bfloat16;
    const float scale = sums.rms(my_row, S::kHidden, p.eps);
    const float2 w = unpack_values(*reinterpret_cast<const std::uint32_t*>(p.final_norm + my_column));
    const std::int64_t at = my_row * S::kHidden + my_column;
    *reinterpret_cast<std::uint32_t*>(p.normed + at) =
        pack_values(rounded<T>(stream.x * scale) * w.x, rounded<T>(stream.y * scale) * w.y);
    *reinterpret_cast<std::uint32_t*>(p.sum + at) = pack_values(stream.x, stream.y);
  }
  // Increments the number of the step. Every block reads the old number before it writes its first value, and this
  // block has already read values to which all blocks contributed. So no block needs the old number any more.
  if (block == 0 && thread == 0) *p.step += 1;
#endif
}

}  // namespace tessera::cuda::decoder_layers
