// Computes the matmuls of moe_hopper.cuh with 4-bit weights (mxfp4 in moe_experts.h), which are converted in registers
// (moe_hopper_parts.cuh).
//
// Packed weights arrive in boxes (copies by TMA) of 256 columns, and the scale factors of a tile arrive all at once. A
// thread unpacks a word into pairs, whose two columns are four apart (moe_mxfp4.cuh). The B operand of a product, which
// is x, must have its columns in the same order. So the kernel that sorts x, and the kernel of gate and up, store
// columns in this order. Within 32 columns, column 4 i + j goes to place 8 j + i.
//
// A thread spends about 122 instructions on a stage (64 columns of k) if a tile has up to 64 tokens, and 142 with 256
// tokens. Among these instructions, 88 unpack. The others are for addresses, barriers and the operands of products.
// With 256 tokens, the products of a stage last 1024 cycles of the multiprocessor. A scheduler has two warps and issues
// their 2 · 142 = 284 instructions in 284 of these cycles. The products of a stage run while the next stage is
// unpacked. After the last stage of a box, only the other warpgroup fills the tensor cores. With few tokens, unpacking
// limits the speed.
#pragma once

#include "tessera/ops/moe/moe_hopper_parts.cuh"
#include "tessera/ops/moe/moe_mxfp4.cuh"

namespace tessera::cuda::moe {

inline constexpr int kPackedBoxStages = kHopperRowBytes * 2 / kHopperDepth;  // stages of x per box of weights
inline constexpr int kPackedMostBlocks = 96;                                 // maximum of k / 32 (blocks of 32 values)
inline constexpr int kPackedScales = kHopperWeightRows * kPackedMostBlocks;  // the bytes of a tile's scale factors
template <bool kGateUp>
inline constexpr int kPackedShared = 1024 + kPackedStages* kPackedRowsBytes + kPackedBoxes* kPackedBoxBytes +
                                     2 * kPackedScales + 2 * kHopperWarpgroups* kResultBytes<kGateUp>;
static_assert(kPackedShared<false> <= 232448 - 1024, "a block may have 232448 bytes; 1024 of them hold the barriers");

// The matmul's arguments. The tensor map matmul.w treats the packed bytes as bfloat16 elements. Its boxes have 64
// elements by kHopperWeightRows rows.
template <class T>
struct PackedMatmul {
  HopperMatmul<T> matmul;
  const std::uint8_t* scales;  // [experts, w_rows, k / 32]
};

struct PackedRings {
  RowsRing rows;
  BoxRing weights;
  PackedRing<2> scales;
};

// Copies the scale factors of a tile's weight rows, in the order of the rows in a box of weights. `group` is the
// block's first group of 16 rows.
template <class T, bool kGateUp>
__device__ inline void copy_scales(const PackedMatmul<T>& packed, PackedRing<2>& ring, int expert, int group) {
  const HopperMatmul<T>& p = packed.matmul;
  const int row_bytes = p.k / kPackedBlock;
  const std::uint8_t* const of_expert = packed.scales + static_cast<std::int64_t>(expert) * (p.w_rows * row_bytes);
  ring.wait_empty();
  SharedBarrier& full = ring.full[ring.slot];
  full.arrive_and_expect(static_cast<std::uint32_t>(kHopperWeightRows * row_bytes));
  constexpr int kRows = kGateUp ? 8 : 16;  // the number of neighbouring rows in one copy
  const int bytes = kRows * row_bytes;
  std::uint32_t to = ring.address();
#pragma unroll 1
  for (int i = 0; i < kHopperWeightRows / 16; ++i) {
    // Groups past the last one repeat the last group. Their results are not stored.
    const std::uint8_t* const from = of_expert + min(group + i, p.w_rows / 16 - 1) * bytes;
    bulk_copy(to, from, static_cast<std::uint32_t>(bytes), full);
    to += static_cast<std::uint32_t>(bytes);
    if constexpr (kGateUp) {
      bulk_copy(to, from + p.n * row_bytes, static_cast<std::uint32_t>(bytes), full);
      to += static_cast<std::uint32_t>(bytes);
    }
  }
  ring.advance();
}

// Issues all copies of the block, in the order in which the block needs them. Only one thread calls this function.
template <class T, bool kGateUp>
__device__ inline void copy_packed_tiles(const PackedMatmul<T>& packed, PackedRings r, int items, int across,
                                         int stages) {
  const HopperMatmul<T>& p = packed.matmul;
  const int rank = static_cast<int>(block_in_cluster());
  const int clusters = static_cast<int>(gridDim.x) / kHopperCluster;
  for (int i = static_cast<int>(blockIdx.x) / kHopperCluster; i < items; i += clusters) {
    const Tile tile = p.order.tiles[i / across];
    const int group = (i % across * kHopperCluster + rank) * (kHopperWeightRows / 16);
    copy_scales<T, kGateUp>(packed, r.scales, tile.expert, group);
    copy_stages<T, kPackedBoxStages, false>(p, r.rows, r.weights, tile, group, rank, stages);
  }
}

// Unpacks the thread's part of a stage. `word` is the byte offset, in the box, of the thread's word in chunk 0 of the
// thread's first row. The thread's second row is eight rows further. Chunks have 16 bytes, which are 32 columns. The
// copy engine (TMA) has swizzled the chunks. `in_box` is the stage's number in the box. `scales` has two scale factors
// for each of the two rows. Large factors need a second multiplication. Models have almost no large factors, so the
// warp skips this multiplication unless one of its threads has a large factor.
__device__ inline void unpack_stage(const unsigned char* box, std::uint32_t word, int in_box,
                                    const std::uint32_t (&scales)[2], PackedOperand& to) {
  const PackedFactors factors[2] = {PackedFactors(scales[0]), PackedFactors(scales[1])};
#pragma unroll
  for (int block = 0; block < 2; ++block) {
    const std::uint32_t at = word ^ static_cast<std::uint32_t>(in_box * 2 + block) * 16;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      std::uint32_t pairs[4];
      unpack_raw(*reinterpret_cast<const std::uint32_t*>(box + at + half * 8 * kHopperRowBytes), pairs);
#pragma unroll
      for (int i = 0; i < 4; ++i) to[block * 2 + i / 2][half + i % 2 * 2] = times(pairs[i], factors[half].first(block));
    }
  }
  if (__any_sync(~0U, factors[0].has_large() || factors[1].has_large())) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int step = 0; step < 4; ++step)
#pragma unroll
        for (int i = half; i < 4; i += 2) to[step][i] = times(to[step][i], factors[half].second(step / 2));
  }
}

// Computes the sums of a tile of kN tokens. `blocks` is the number of blocks of 32 values in a row of weights, and is
// even.
template <class T, int kN>
__device__ inline void multiply_packed(float (&sum)[kMostProductSums], PackedRings& r, int blocks, int stages,
                                       int warpgroup) {
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroup;
  const int row = warpgroup * 64 + thread / kWarp * 16 + thread % kWarp / 4;
  const auto word = static_cast<std::uint32_t>(row * kHopperRowBytes + (row & 7) * 16 + thread % 4 * 4);
  r.scales.wait_full();
  // The scale factors of the thread's two rows. Each row has two bytes for each stage.
  const auto* const scales = reinterpret_cast<const std::uint16_t*>(r.scales.data() + row * blocks);
  const auto* const scales_below = scales + 4 * blocks;
  const auto unpack = [&](const unsigned char* box, int in_box, int stage, PackedOperand& to) {
    unpack_stage(box, word, in_box, {scales[stage], scales_below[stage]}, to);
  };
  constexpr int kParts = parts_of<kPackedBoxStages>(kN);
  int s = 0;
  for (; s + kPackedBoxStages <= stages; s += kPackedBoxStages) {
    r.weights.wait_full();
    multiply_slots<T, kN, kParts, kPackedBoxStages>(
        sum, r.rows, r.weights, s, /*ends_box=*/true,
        [&](const unsigned char* box, int i, PackedOperand& to) { unpack(box, i, s + i, to); });
  }
  // Multiplies the stages of the last box, if this box is not full. The products of each stage end before the next
  // stage is unpacked.
  const int begin = s;
  if (s < stages) r.weights.wait_full();
#pragma unroll 1
  for (; s < stages; ++s) {
    const int part = (s - begin) % kParts;
    const bool is_last = s + 1 == stages;
    PackedOperand held;
    unpack(r.weights.data(), s - begin, s, held);
    if (is_last) r.weights.release();
    if (part == 0) r.rows.wait_full();
    multiply_part<T, kN>(sum, held, r.rows, part, s);
    wait_for_products<0>();
    if (is_last || part == kParts - 1) {
      release_rows(r.rows, r.rows.slot);
      r.rows.advance();
    }
  }
  hold(sum);
  r.scales.release();
}

template <class T>
__device__ inline void multiply_packed(float (&sum)[kMostProductSums], PackedRings& r, int blocks, int stages,
                                       int warpgroup, int rows) {
  with_tile_size(rows, [&]<int kN>() { multiply_packed<T, kN>(sum, r, blocks, stages, warpgroup); });
}

// Computes the matmul. Preconditions: n is a multiple of 32; k is a multiple of 64 and at most 32 · kPackedMostBlocks;
// gridDim.x is a multiple of kHopperCluster.
template <class T, bool kGateUp>
__global__ void __launch_bounds__(kHopperThreads, 1) hopper_packed(const __grid_constant__ PackedMatmul<T> packed) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char unaligned[];
  __shared__ SharedBarrier rows_full[kPackedStages], rows_empty[kPackedStages];
  __shared__ SharedBarrier weights_full[kPackedBoxes], weights_empty[kPackedBoxes];
  __shared__ SharedBarrier scales_full[2], scales_empty[2];
  constexpr int kColumns = kGateUp ? kHopperWeightRows / 2 : kHopperWeightRows;  // columns of the result
  constexpr int kMultiplying = kHopperWarpgroups * kWarpgroup / kWarp;           // warps that multiply
  const HopperMatmul<T>& p = packed.matmul;
  unsigned char* const shared = unaligned + (1024 - shared_address(unaligned) % 1024) % 1024;
  unsigned char* const boxes = shared + kPackedStages * kPackedRowsBytes;
  unsigned char* const factors = boxes + kPackedBoxes * kPackedBoxBytes;
  PackedRings rings{
      .rows = {shared, kPackedRowsBytes, rows_full, rows_empty},
      .weights = {boxes, kPackedBoxBytes, weights_full, weights_empty},
      .scales = {factors, kPackedScales, scales_full, scales_empty},
  };
  const int warpgroup = static_cast<int>(threadIdx.x) / kWarpgroup;
  if (threadIdx.x == 0) {
    rings.rows.prepare(kHopperCluster * kMultiplying);
    rings.weights.prepare(kMultiplying);
    rings.scales.prepare(kMultiplying);
    SharedBarrier::make_visible();
    prefetch_map(p.x);
    prefetch_map(p.w);
  }
  let_next_begin();
  sync_cluster();
  wait_for_previous();

  const int across = (p.n + kColumns * kHopperCluster - 1) / (kColumns * kHopperCluster);
  const int items = *p.order.num_tiles * across;
  const int stages = p.k / kHopperDepth;
  if (warpgroup == kHopperWarpgroups) {
    // The block has 168 registers for each of its threads. A thread of this warpgroup keeps 24 registers, and a thread
    // of the other two warpgroups gets 240.
    keep_registers<24, false>();
    if (threadIdx.x % kWarpgroup == 0) {
      let_copies_see_stores();
      copy_packed_tiles<T, kGateUp>(packed, rings, items, across, stages);
    }
    __syncwarp();
  } else {
    keep_registers<240, true>();
    const int rank = static_cast<int>(block_in_cluster());
    const int clusters = static_cast<int>(gridDim.x) / kHopperCluster;
    unsigned char* const results = factors + 2 * kPackedScales + warpgroup * 2 * kResultBytes<kGateUp>;
    int turn = 0;
    for (int i = static_cast<int>(blockIdx.x) / kHopperCluster; i < items; i += clusters) {
      const Tile tile = p.order.tiles[i / across];
      float sum[kMostProductSums];
      multiply_packed<T>(sum, rings, p.k / kPackedBlock, stages, warpgroup, tile.rows);
      const int column = (i % across * kHopperCluster + rank) * kColumns + warpgroup * kResultColumns<kGateUp>;
      constexpr ColumnOrder kOrder = kGateUp ? ColumnOrder::kPaired : ColumnOrder::kGiven;
      store_results<T, kGateUp, kOrder>(p, sum, tile, column, warpgroup, results, turn);
    }
  }
  // A block must not end before this wait, because other blocks of the cluster may still write its shared memory and
  // signal its barriers.
  sync_cluster();
#endif
}

}  // namespace tessera::cuda::moe
