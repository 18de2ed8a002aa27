// The warp of a prefill attention block that copies (prefill_attention.cuh): queries of each work, and its half of each
// tile of keys and values, in the order in which the products take them: the keys of a tile, then the values of the
// tile before.
#pragma once

#include "tessera/ops/prefill_attention.cuh"

namespace tessera::cuda::prefill {

template <class T>
struct CopyingWarp {
  const Attention<T>& p;
  const Shared& shared;
  int rank = static_cast<int>(block_in_cluster());
  int lane = static_cast<int>(threadIdx.x) % kWarp;
  Place<kSlots> at = {};
  Place<kQuerySlots> query_at = {};

  __device__ void run() {
    const int cluster = static_cast<int>(blockIdx.x) / kCluster;
    const int end = p.starts[cluster + 1];
    for (int i = p.starts[cluster]; i < end; ++i)
      if (const Work w = work_at(p, i, rank); w.tiles > 0) copy(w);
  }

  __device__ void copy(const Work& w) {
    copy_queries(w);
    const int kv_head = w.head / p.group;
    const int last = w.tiles - 1;
    int box = find_box(w, last);
    int box_before = box;
    for (int tile = last; tile >= -1; --tile) {
      if (tile >= 0) copy_tile(p.keys, box, kv_head);
      const int next = tile > 0 ? find_box(w, tile - 1) : 0;
      if (tile < last) copy_values(w, tile + 1, box_before, kv_head);
      box_before = box;
      box = next;
    }
  }

  __device__ void copy_queries(const Work& w) {
    SharedBarrier& full = shared.query_full[query_at.slot];
    shared.query_empty[query_at.slot].wait(query_at.parity ^ 1);
    if (lane == 0) {
      full.arrive_and_expect(kQueryBytes);
      for (int group = 0; group < kWarpgroups; ++group)
        copy_box(shared.query(query_at.slot) + static_cast<std::uint32_t>(group * kGroupQueryBytes), p.q, full, 0,
                 w.first_row + w.tile_begin + group * kGroupRows, 0, w.head, 0);
    }
    __syncwarp();
    query_at.advance();
  }

  // Of the lane's box of a tile, its first group of 8 tokens in the cache; beyond it where no row of the work sees one.
  __device__ int find_box(const Work& w, int tile) const {
    const int token = tile * kKeys + lane % kBoxes * kBoxTokens;
    if (token >= w.seen) return p.token_groups;
    const int page = p.page_table[static_cast<std::int64_t>(w.request) * p.max_pages + token / p.page_size];
    return (page * p.page_size + token % p.page_size) / 8;
  }

  // When the tile's slot is empty in both blocks. They fill it together.
  __device__ std::uint32_t begin_tile() {
    shared.empty[at.slot].wait(at.parity ^ 1);
    if (lane == 0) shared.full[at.slot].arrive_and_expect(kTileBytes);
    return shared.tile(at.slot);
  }
  __device__ void copy_part(std::uint32_t to, const CUtensorMap& map, int token, int column, int group, int kv_head) {
    copy_box_to_all(to, map, shared.full[at.slot], (1 << kCluster) - 1, 0, token, column, group, kv_head);
  }

  // `box`: find_box() of the tile.
  __device__ void copy_tile(const CUtensorMap& map, int box, int kv_head) {
    const std::uint32_t to = begin_tile();
#pragma unroll 1
    for (int i = rank * kBoxes / kCluster; i < (rank + 1) * kBoxes / kCluster; ++i) {
      const int group = __shfl_sync(~0U, box, i);
      if (lane == 0) copy_part(to + static_cast<std::uint32_t>(i * 2 * kTokenGroupBytes), map, 0, 0, group, kv_head);
    }
    at.advance();
  }

  // Values that no row sees are zeros: what lies there may be NaN, and their weights of 0 would not undo it.
  __device__ void copy_values(const Work& w, int tile, int box, int kv_head) {
    const int seen = w.seen - tile * kKeys;
    if (seen >= kKeys || seen % kBoxTokens == 0) return copy_tile(p.values, box, kv_head);
    const std::uint32_t to = begin_tile();
#pragma unroll 1
    for (int i = rank * kBoxes / kCluster; i < (rank + 1) * kBoxes / kCluster; ++i) {
      const int group = __shfl_sync(~0U, box, i);
      const std::uint32_t box_at = to + static_cast<std::uint32_t>(i * 2 * kTokenGroupBytes);
      const int tokens = seen - i * kBoxTokens;
      if (lane != 0) continue;
      if (tokens <= 0 || tokens >= kBoxTokens) {
        copy_part(box_at, p.values, 0, 0, group, kv_head);
      } else {
        copy_tokens(box_at, tokens, group, kv_head);
      }
    }
    at.advance();
  }

  // The first `tokens` of a box, one by one, and zeros.
  __device__ void copy_tokens(std::uint32_t to, int tokens, int group, int kv_head) {
#pragma unroll 1
    for (int i = 0; i < kBoxTokens * (kHeadDim / kColumns); ++i) {
      const int token = i / (kHeadDim / kColumns);
      const int column = i % (kHeadDim / kColumns);
      const int offset = token / 8 * kTokenGroupBytes + column * kEightRowBytes + token % 8 * kRowBytes;
      copy_part(to + static_cast<std::uint32_t>(offset), p.value_rows, token % 8, column,
                token < tokens ? group + token / 8 : p.token_groups, kv_head);
    }
  }
};

}  // namespace tessera::cuda::prefill
