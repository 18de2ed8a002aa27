// In a product of few rows (quantised_block.cuh), some warps of a block round x to E4M3. They write each stage's rows
// and scales to the ring, where the copy engine would otherwise put rows that another kernel has rounded. No other
// kernel has to round x, so a decode saves one launch before each product.
#pragma once

#include "tessera/ops/cuda/box_copy.cuh"
#include "tessera/ops/cuda/rounded_rows.cuh"
#include "tessera/ops/quantised/tile_ring.cuh"

namespace tessera::cuda::quantised {

// Rounds all rows of x in every kRounders-th stage of the block, from stage `warp` on. All lanes of the warp call this
// function. Each half of the warp rounds a group of 128 columns of one row at a time. Pairs of rows past the last row
// are not written. Their old data do no harm, because a row of x affects only its own results.
template <class T, class Ring>
__device__ inline void round_stages(const TiledQuantised<T>& p, const TilePlace& at, const Ring& ring, int warp) {
  constexpr int kPairs = Ring::kN / 2;  // number of pairs of rows
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int first_row = lane / kGroupThreads;
  const int column = lane % kGroupThreads * 8;
  const int rows = p.m - at.first_row;
  for (int s = warp; s < at.count; s += kRounders) {
    const int from = (at.first + s) * kRoundedGroup + column;
    Pack<T, 8> values[kPairs];
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const int row = first_row + 2 * i;
      values[i] = {};
      if (row < rows && from < p.k)
        values[i] = load_pack<T, 8>(p.rows + static_cast<std::int64_t>(at.first_row + row) * p.k + from);
    }
    const int slot = s % ring.stages;
    const int turn = s / ring.stages;
    if (turn > 0) ring.empty[slot].wait((turn - 1) & 1);
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const int row = first_row + 2 * i;
      if (2 * i >= rows) break;
      const RoundedPack rounded = round_pack(values[i]);
      // The 16-byte chunks of a row are swizzled in the same way as by the copy engine's 128-byte swizzle.
      const int chunk = (column / 16) ^ (row % 8);
      asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(
                       ring.rows(slot) + static_cast<std::uint32_t>(row * kRoundedGroup + chunk * 16 + column % 16)),
                   "r"(rounded.values.x), "r"(rounded.values.y)
                   : "memory");
      if (column == 0)
        asm volatile("st.shared.f32 [%0], %1;" ::"r"(ring.scales(slot) + static_cast<std::uint32_t>(row * 4)),
                     "f"(rounded.scale)
                     : "memory");
    }
    let_copies_see_shared_stores();  // products read shared memory through the async proxy, like copies
    __syncwarp();
    if (lane == 0) ring.rows_full[slot].arrive();
  }
}

}  // namespace tessera::cuda::quantised
