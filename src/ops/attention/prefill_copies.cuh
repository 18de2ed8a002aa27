// The copying warps of a block of prefill attention (prefill_attention.cuh). One warp copies the block's half of each
// tile of keys. A second warp copies the block's half of each tile of values, and the queries of each work item. Tiles
// of keys and values go to a ring of slots in shared memory, which is filled in the order in which the products use the
// slots. After the keys of a tile come the values of the tile that is processed before it, because the products with a
// tile's values run one step later than those with its keys.
//
// A tile is copied in boxes of 16 tokens. A thread needs about 100 cycles to request a box, and the first product waits
// for all boxes of a tile. So this code computes nothing between the requests for the boxes of a tile.
#pragma once

#include "tessera/ops/attention/prefill_attention.cuh"

namespace tessera::cuda::prefill {

template <class S, class T>
struct CopyingWarp {
  static constexpr int kMine = S::kBoxes / kCluster;  // number of boxes of a tile that the block copies

  const Attention<T>& p;
  const Shared<S>& shared;
  bool copies_keys;
  bool copies_values;  // whether the warp copies the values and the queries
  int rank = static_cast<int>(block_in_cluster());
  int lane = static_cast<int>(threadIdx.x) % kWarp;
  Place<S::kSlots> at = {};
  Place<S::kQuerySlots> query_at = {};
  Work work = {};
  int kv_head = 0;
  int key_box = 0;  // the result of find_box() for the next tile of keys
  int value_box = 0;

  // Looks up work item `i` and the boxes of its last tile. This function may be called while the preceding kernel still
  // runs.
  __device__ void look_up(int i) {
    work = work_at<S>(p, i, rank);
    kv_head = work.head / p.group;
    key_box = value_box = find_box(work.end - 1);
  }

  // Copies for the work items begin … end - 1. Precondition: look_up(begin) was called.
  __device__ void run(int begin, int end) {
    wait_for_previous();
    let_copies_see_stores();
#pragma unroll 1
    for (int i = begin; i < end; ++i) {
      if (i > begin) look_up(i);
      if (!work.is_empty()) copy();
    }
    if (copies_keys) wait_for_all();
  }

  __device__ void copy() {
    if (copies_values) copy_queries();
    const int last = work.end - 1;
#pragma unroll 1
    for (int tile = last; tile >= work.first - 1; --tile) {
      if (tile >= work.first) {
        if (copies_keys) copy_tile(p.keys, tile, key_box);
        at.advance();
      }
      if (tile < last) {
        if (copies_values) copy_tile(p.values, tile + 1, value_box);
        at.advance();
      }
    }
  }

  __device__ void copy_queries() {
    SharedBarrier& full = shared.query_full[query_at.slot];
    shared.query_empty[query_at.slot].wait(query_at.parity ^ 1);
    if (lane == 0) {
      full.arrive_and_expect(S::kQueryBytes);
#pragma unroll
      for (int group = 0; group < S::kRowGroups; ++group)
        copy_box(shared.query(query_at.slot) + static_cast<std::uint32_t>(group * S::kGroupQueryBytes), p.q, full, 0,
                 work.first_row + work.tile_begin + group * kGroupRows, 0, work.head, 0);
    }
    __syncwarp();
    query_at.advance();
  }

  // Returns where the lane's box of `tile` begins in the cache, counted in groups of 8 tokens. A box has kBoxTokens
  // tokens, and each lane has one of the boxes that this block copies. Returns an index past the end of the cache if no
  // row of the work item sees the box. The page of such a box may have been freed.
  __device__ int find_box(int tile) const {
    const int token = tile * S::kKeys + (rank * kMine + lane % kMine) % S::kPanelBoxes * kBoxTokens;
    if (tile < 0 || token >= work.seen) return p.token_groups;
    if constexpr (S::kWindowed)
      if (token + kBoxTokens <= work.unit_begin - p.window + 1) return p.token_groups;
    const int page = p.page_table[static_cast<std::int64_t>(work.request) * p.max_pages + token / p.page_size];
    return (page * p.page_size + token % p.page_size) / 8;
  }

  // Copies the block's half of a tile to both blocks, as soon as the slot is empty in both. `box` is the result of
  // find_box() for this tile. The call replaces it by the result for tile - 1, which is copied next.
  __device__ void copy_tile(const CUtensorMap& map, int tile, int& box) {
    int groups[kMine];
#pragma unroll
    for (int i = 0; i < kMine; ++i) groups[i] = __shfl_sync(~0U, box, i);
    box = find_box(tile - 1);
    SharedBarrier& full = shared.full[at.slot];
    const int first = rank * kMine;
    shared.empty[at.slot].wait(at.parity ^ 1);
    if (lane == 0) {
      full.arrive_and_expect(S::kTileBytes);
#pragma unroll
      for (int i = 0; i < kMine; ++i)
        copy_box_to_all(shared.tile(at.slot) + static_cast<std::uint32_t>((first + i) * S::kBoxBytes), map, full,
                        (1 << kCluster) - 1, 0, 0, (first + i) / S::kPanelBoxes * S::kPanelMatrices, groups[i],
                        kv_head);
    }
    __syncwarp();
  }

  // Waits until all slots are empty. Then the block may end: the other block no longer uses the data that this block
  // copied to it, and no longer signals this block's barriers.
  __device__ void wait_for_all() {
#pragma unroll 1
    for (int i = 0; i < S::kSlots; ++i) {
      shared.empty[at.slot].wait(at.parity ^ 1);
      at.advance();
    }
  }
};

}  // namespace tessera::cuda::prefill
