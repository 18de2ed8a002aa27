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
#include "tessera/ops/attention/prefill_boxes.cuh"

namespace tessera::cuda::prefill {

template <class S, class T>
struct CopyingWarp : WorkBoxes<S, T, S::kBoxes / kCluster> {
  static constexpr int kMine = S::kBoxes / kCluster;  // number of boxes of a tile that the block copies
  using Boxes = WorkBoxes<S, T, kMine>;
  using Boxes::first_box, Boxes::key_box, Boxes::kv_head, Boxes::lane, Boxes::p, Boxes::shared, Boxes::value_box,
      Boxes::work;

  bool copies_keys;
  bool copies_values;  // whether the warp copies the values and the queries
  Place<S::kSlots> at = {};

  // Copies for the work items begin … end - 1. Precondition: look_up(begin) was called.
  __device__ void run(int begin, int end) {
    this->for_each_item(begin, end, [this] { copy(); });
    if (copies_keys) wait_for_all();
  }

  __device__ void copy() {
    if (copies_values) this->copy_queries();
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

  // Copies the block's half of a tile to both blocks, as soon as the slot is empty in both. `box` is the result of
  // find_box() for this tile. The call replaces it by the result for tile - 1, which is copied next.
  __device__ void copy_tile(const CUtensorMap& map, int tile, int& box) {
    int groups[kMine];
    Boxes::gather(box, groups);
    box = this->find_box(tile - 1);
    SharedBarrier& full = shared.full[at.slot];
    shared.empty[at.slot].wait(at.parity ^ 1);
    if (lane == 0) {
      full.arrive_and_expect(S::kTileBytes);
#pragma unroll
      for (int i = 0; i < kMine; ++i)
        copy_box_to_all(shared.tile(at.slot) + static_cast<std::uint32_t>((first_box + i) * S::kBoxBytes), map, full,
                        (1 << kCluster) - 1, 0, 0, (first_box + i) / S::kPanelBoxes * S::kPanelMatrices, groups[i],
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
