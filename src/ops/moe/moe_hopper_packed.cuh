// Computes the matmuls of moe_hopper.cuh with weights of 4 bits (mxfp4 in moe_experts.h). The warpgroups that multiply
// convert the weights to bfloat16 in registers, because a wgmma instruction can take its first matrix from there.
//
// Packed weights arrive in boxes of 256 columns through a ring of their own, and their scale factors arrive once for
// each tile. A thread unpacks a word into pairs of columns four apart (moe_mxfp4.cuh). The second matrix of a product
// must have the same order of k. So the sort by expert stores the columns of x in that order, and the kernel of gate
// and up stores its results in that order. Within 32 columns, column 4 i + j goes to place 8 j + i.
//
// Unpacking a stage takes a warpgroup about 100 instructions a thread. With 256 tokens a tile, the products of a stage
// last 1024 cycles of the multiprocessor, and unpacking issues instructions in a fourth of these cycles. In the source,
// a stage's products run while the next stage is unpacked. In the compiled code they do not, for lack of registers
// (ptxas C7512). So only the other warpgroup fills the tensor cores meanwhile.
#pragma once

#include "tessera/ops/moe/moe_hopper.cuh"
#include "tessera/ops/moe/moe_mxfp4.cuh"

namespace tessera::cuda::moe {

inline constexpr int kPackedStages = 4;                                      // stages of the ring of x
inline constexpr int kPackedBoxes = 3;                                       // boxes of the ring of weights
inline constexpr int kPackedBoxStages = kHopperRowBytes * 2 / kHopperDepth;  // stages of x per box of weights
inline constexpr int kPackedBoxBytes = kHopperWeightRows * kHopperRowBytes;  // bytes of one box in shared memory
inline constexpr int kPackedRowsBytes = kHopperRows * kHopperRowBytes;       // bytes of a stage of x
inline constexpr int kPackedMostBlocks = 96;                                 // blocks of 32 values in a row: k / 32
inline constexpr int kPackedScales = kHopperWeightRows * kPackedMostBlocks;  // bytes of a tile's scale factors
template <bool kGateUp>
inline constexpr int kPackedShared = 1024 + kPackedStages* kPackedRowsBytes + kPackedBoxes* kPackedBoxBytes +
                                     2 * kPackedScales + 2 * kHopperWarpgroups* kResultBytes<kGateUp>;
static_assert(kPackedShared<false> <= 232448 - 1024, "a block may have 232448 bytes; 1024 of them hold the barriers");

// The matmul's arguments. matmul.w maps the packed bytes as bfloat16 elements, in boxes of 64 elements by
// kHopperWeightRows rows.
template <class T>
struct PackedMatmul {
  HopperMatmul<T> matmul;
  const std::uint8_t* scales;  // [experts, w_rows, k / 32]
};

// A ring of kSlots slots in shared memory, and the current position in it.
template <int kSlots>
struct PackedRing {
  unsigned char* base;
  int slot_bytes;
  SharedBarrier* full;
  SharedBarrier* empty;
  int slot = 0;
  std::uint32_t turn = 0;

  __device__ unsigned char* data() const { return base + slot * slot_bytes; }
  __device__ std::uint32_t address() const { return shared_address(data()); }
  __device__ void advance() {
    if (++slot == kSlots) {
      slot = 0;
      ++turn;
    }
  }
  __device__ void wait_full() const { full[slot].wait(turn & 1); }
  __device__ void wait_empty() const {
    if (turn > 0) empty[slot].wait((turn - 1) & 1);
  }
};
struct PackedRings {
  PackedRing<kPackedStages> rows;
  PackedRing<kPackedBoxes> weights;
  PackedRing<2> scales;
};

// Copies this block's share of a stage's rows of x to all blocks of the cluster. `rank` is this block's number in the
// cluster.
__device__ inline void copy_packed_rows(const CUtensorMap& x, const PackedRing<kPackedStages>& ring, const Tile& tile,
                                        int rank, int stage) {
  ring.wait_empty();
  SharedBarrier& full = ring.full[ring.slot];
  const int steps = (tile.rows + kHopperStep - 1) / kHopperStep;
  full.arrive_and_expect(static_cast<std::uint32_t>(steps * kHopperStep * kHopperRowBytes));
  constexpr int kShare = kHopperStep / kHopperCluster;
  for (int step = 0; step < steps; ++step) {
    const int row = step * kHopperStep + rank * kShare;
    copy_box_to_all(ring.address() + static_cast<std::uint32_t>(row * kHopperRowBytes), x, full,
                    (1 << kHopperCluster) - 1, stage * kHopperDepth, tile.first + row);
  }
}

// Issues all copies of the block, in the order in which they are needed. One thread calls it.
template <class T, bool kGateUp>
__device__ inline void copy_packed_tiles(const PackedMatmul<T>& packed, PackedRings r, int items, int across,
                                         int stages) {
  const HopperMatmul<T>& p = packed.matmul;
  const int rank = static_cast<int>(block_in_cluster());
  const int clusters = static_cast<int>(gridDim.x) / kHopperCluster;
  const int blocks = p.k / kPackedBlock;
  const int groups = p.w_rows / 16;
  for (int i = static_cast<int>(blockIdx.x) / kHopperCluster; i < items; i += clusters) {
    const Tile tile = p.order.tiles[i / across];
    const int group = (i % across * kHopperCluster + rank) * (kHopperWeightRows / 16);
    r.scales.wait_empty();
    SharedBarrier& scales = r.scales.full[r.scales.slot];
    scales.arrive_and_expect(static_cast<std::uint32_t>(kHopperWeightRows * blocks));
    for (int half = 0; half < kHopperWeightRows / 8; ++half) {
      // Groups past the last one repeat the last group. Their results are not stored.
      const int of = min(group + half / 2, groups - 1);
      const int row = kGateUp ? of * 8 + half % 2 * p.n : of * 16 + half % 2 * 8;
      bulk_copy(r.scales.data() + half * 8 * blocks,
                packed.scales + (static_cast<std::int64_t>(tile.expert) * p.w_rows + row) * blocks,
                static_cast<std::uint32_t>(8 * blocks), scales);
    }
    r.scales.advance();
    for (int s = 0; s < stages; ++s, r.rows.advance()) {
      if (s % kPackedBoxStages == 0) {
        r.weights.wait_empty();
        SharedBarrier& full = r.weights.full[r.weights.slot];
        full.arrive_and_expect(kPackedBoxBytes);
        copy_box(r.weights.address(), p.w, full, s / kPackedBoxStages * (kHopperRowBytes / 2), 0, 0, group,
                 tile.expert);
        r.weights.advance();
      }
      copy_packed_rows(p.x, r.rows, tile, rank, s);
    }
  }
}

// A thread's part of a stage of weights, in the form that multiply_held() takes: steps of 16 columns.
using PackedOperand = std::uint32_t[kHopperDepth / 16][4];

// Unpacks the thread's part of a stage. `row` is the thread's first row in the tile, and row + 8 is its second. `stage`
// is counted within the tile.
__device__ inline void unpack_stage(const unsigned char* box, const unsigned char* scales, int row, int blocks,
                                    int stage, PackedOperand& to) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int block = 0; block < kHopperDepth / kPackedBlock; ++block) {
    const int chunk = stage % kPackedBoxStages * 2 + block;
    std::uint32_t pairs[2][4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = row + half * 8;
      const unsigned char* const word = box + r * kHopperRowBytes + (chunk ^ (r & 7)) * 16 + lane % 4 * 4;
      const PackedFactor factor(scales[r * blocks + stage * 2 + block]);
      unpack_word(*reinterpret_cast<const std::uint32_t*>(word), factor, pairs[half]);
    }
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      std::uint32_t(&operand)[4] = to[block * 2 + step];
      operand[0] = pairs[0][2 * step], operand[1] = pairs[1][2 * step];
      operand[2] = pairs[0][2 * step + 1], operand[3] = pairs[1][2 * step + 1];
    }
  }
}

__device__ inline void release_rows(const PackedRing<kPackedStages>& rows, int slot) {
  if (threadIdx.x % kWarp != 0) return;
  for (unsigned block = 0; block < kHopperCluster; ++block) arrive_at_block(rows.empty[slot], block);
}

// Computes the sums of a tile of kN tokens.
template <int kN>
__device__ inline void multiply_packed(float (&sum)[kMostProductSums], PackedRings& r, int blocks, int stages,
                                       int warpgroup) {
  const auto thread = threadIdx.x % kWarpgroup;
  const int row = warpgroup * 64 + static_cast<int>(thread / kWarp * 16 + thread % kWarp / 4);
  r.scales.wait_full();
  const unsigned char* const scales = r.scales.data();
  int last = 0;
  PackedOperand operands[2];
  const auto multiply_stage = [&](int s, PackedOperand& a) {
    if (s % kPackedBoxStages == 0) r.weights.wait_full();
    unpack_stage(r.weights.data(), scales, row, blocks, s, a);
    if (s % kPackedBoxStages == kPackedBoxStages - 1 || s == stages - 1) {
      __syncwarp();
      if (thread % kWarp == 0) r.weights.empty[r.weights.slot].arrive();
      r.weights.advance();
    }
    r.rows.wait_full();
    const std::uint64_t b = matrix_at(r.rows.address());
    begin_products();
#pragma unroll
    for (int d = 0; d < kHopperDepth / 16; ++d)
      multiply_held<__nv_bfloat16, kN>(sum, a[d], b + static_cast<std::uint64_t>(d) * kMatrixStep, s + d);
    end_products();
    wait_for_products<1>();
    if (s > 0) release_rows(r.rows, last);
    last = r.rows.slot;
    r.rows.advance();
  };
  for (int s = 0; s < stages; s += 2) {
    multiply_stage(s, operands[0]);
    if (s + 1 < stages) multiply_stage(s + 1, operands[1]);
  }
  wait_for_products<0>();
  release_rows(r.rows, last);
  __syncwarp();
  if (thread % kWarp == 0) r.scales.empty[r.scales.slot].arrive();
  r.scales.advance();
}

__device__ inline void multiply_packed(float (&sum)[kMostProductSums], PackedRings& r, int blocks, int stages,
                                       int warpgroup, int rows) {
  with_tile_size(rows, [&]<int kN>() { multiply_packed<kN>(sum, r, blocks, stages, warpgroup); });
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
    for (int s = 0; s < kPackedStages; ++s) {
      rows_full[s].init(1);
      rows_empty[s].init(kHopperCluster * kMultiplying);
    }
    for (int s = 0; s < kPackedBoxes; ++s) {
      weights_full[s].init(1);
      weights_empty[s].init(kMultiplying);
    }
    for (int s = 0; s < 2; ++s) {
      scales_full[s].init(1);
      scales_empty[s].init(kMultiplying);
    }
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
      multiply_packed(sum, rings, p.k / kPackedBlock, stages, warpgroup, tile.rows);
      const int column = (i % across * kHopperCluster + rank) * kColumns + warpgroup * kResultColumns<kGateUp>;
      constexpr ColumnOrder kOrder = kGateUp ? ColumnOrder::kPaired : ColumnOrder::kGiven;
      store_results<T, kGateUp, kOrder>(p, sum, tile, column, warpgroup, results, turn);
    }
  }
  // A block must not end earlier, because other blocks of the cluster may still write its shared memory and signal its
  // barriers.
  sync_cluster();
#endif
}

}  // namespace tessera::cuda::moe
