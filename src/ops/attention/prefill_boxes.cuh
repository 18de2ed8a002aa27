// What the copying warps of a block of prefill attention (prefill_attention.cuh) have in common, whether they copy keys
// and values (prefill_copies.cuh) or widen them (prefill_widening.cuh): the loop over work items, the boxes of an
// item's tiles and the copy of its queries.
#pragma once

#include "tessera/ops/attention/prefill_attention.cuh"

namespace tessera::cuda::prefill {

// The boxes that a warp brings. It brings kMine boxes of each tile, from `first_box` on.
template <class S, class T, int kMine>
struct WorkBoxes {
  const Attention<T>& p;
  const Shared<S>& shared;
  int first_box;
  int rank = static_cast<int>(block_in_cluster());
  int lane = static_cast<int>(threadIdx.x) % kWarp;
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

  // Calls on_item() for each of the work items begin … end - 1 that is not empty. The item and the boxes of its last
  // tile are then looked up. Waits for the preceding kernel first. Precondition: look_up(begin) was called.
  template <class F>
  __device__ void for_each_item(int begin, int end, F on_item) {
    wait_for_previous();
    let_copies_see_stores();
#pragma unroll 1
    for (int i = begin; i < end; ++i) {
      if (i > begin) look_up(i);
      if (!work.is_empty()) on_item();
    }
  }

  // Returns where the lane's box of `tile` begins in the cache, counted in groups of 8 tokens. A box has kBoxTokens
  // tokens, and each lane has one of the boxes that this warp brings. Returns an index past the end of the cache if no
  // row of the work item sees the box. The page of such a box may have been freed.
  __device__ int find_box(int tile) const {
    const int token = tile * S::kKeys + (first_box + lane % kMine) % S::kPanelBoxes * kBoxTokens;
    if (tile < 0 || token >= work.seen) return p.token_groups;
    if constexpr (S::kWindowed)
      if (token + kBoxTokens <= work.unit_begin - p.window + 1) return p.token_groups;
    const int page = p.page_table[static_cast<std::int64_t>(work.request) * p.max_pages + token / p.page_size];
    return (page * p.page_size + token % p.page_size) / 8;
  }
  // Returns the box of each lane below kMine in `boxes`.
  __device__ static void gather(int box, int (&boxes)[kMine]) {
#pragma unroll
    for (int i = 0; i < kMine; ++i) boxes[i] = __shfl_sync(~0U, box, i);
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
};

}  // namespace tessera::cuda::prefill
