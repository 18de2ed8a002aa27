// Contains what moe_hopper_packed.cuh and moe_hopper_quantised.cuh share. In both kernels, warpgroups convert weights
// to 16 bits in registers, because a wgmma instruction can take its A operand from registers.
//
// x arrives through one ring buffer of shared memory, and the weights through another. A stage is 64 columns of k. A
// box is what one copy by TMA brings. In a box of weights each row has 128 bytes, which are two stages of 8-bit values
// or four stages of 4-bit values. A slot of the ring of x holds one or several stages, which are called the slot's
// parts.
//
// Within one call of multiply_slots(), the products of a stage run while the next stage is converted into other
// registers. The call ends with a wait for all products, so no product runs while the next call converts its first
// stage. ptxas lets products overlap with the conversion, because every path through the code leads to the wait. If
// products still ran at the end of a loop's body, or if a path left the loop before the wait, ptxas would make every
// single product wait for the one before it (its message C7512).
#pragma once

#include "tessera/ops/moe/moe_hopper.cuh"

namespace tessera::cuda::moe {

inline constexpr int kPackedStages = 4;                                      // slots of the ring of x
inline constexpr int kPackedBoxes = 3;                                       // slots of the ring of weights, a box each
inline constexpr int kPackedBoxBytes = kHopperWeightRows * kHopperRowBytes;  // bytes of one box in shared memory
inline constexpr int kPackedRowsBytes = kHopperRows * kHopperRowBytes;       // the bytes of a slot of x

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
  // Initialises the barriers. `readers` is the number of warps that must release a slot before it is filled again.
  __device__ void prepare(unsigned readers) const {
    for (int s = 0; s < kSlots; ++s) {
      full[s].init(1);
      empty[s].init(readers);
    }
  }
  __device__ void wait_full() const { full[slot].wait(turn & 1); }
  __device__ void wait_empty() const {
    if (turn > 0) empty[slot].wait((turn - 1) & 1);
  }
  // Releases a slot that only this block fills, and goes to the next slot. All lanes of the warp call this function.
  __device__ void release() {
    __syncwarp();
    if (threadIdx.x % kWarp == 0) empty[slot].arrive();
    advance();
  }
};
using RowsRing = PackedRing<kPackedStages>;
using BoxRing = PackedRing<kPackedBoxes>;

// Returns the number of stages of x in one slot of the ring, for tiles of `rows` rows. The number is one for large
// tiles, two for smaller tiles, and kBox for tiles of few rows. kBox is the number of stages of a box of weights.
// Several stages share a slot because a stage of few rows takes less time than the barriers and latencies around it.
template <int kBox>
__host__ __device__ inline constexpr int parts_of(int rows) {
  return rows > kHopperRows / 2 ? 1 : rows > kHopperRows / 4 ? 2 : kBox;
}
// Returns the number of bytes between the starts of two neighbouring stages of x in a slot.
__host__ __device__ inline constexpr int part_bytes(int rows) {
  return (rows + kHopperStep - 1) / kHopperStep * kHopperStep * kHopperRowBytes;
}

// Copies this block's share of the rows of x to a slot in all blocks of the cluster: `parts` stages, from `stage` on.
// Stages past the last column are filled with zeros. `rank` is this block's number in the cluster.
__device__ inline void copy_parts(const CUtensorMap& x, const RowsRing& ring, const Tile& tile, int rank, int stage,
                                  int parts) {
  ring.wait_empty();
  SharedBarrier& full = ring.full[ring.slot];
  const int bytes = part_bytes(tile.rows);
  full.arrive_and_expect(static_cast<std::uint32_t>(parts * bytes));
  constexpr int kShare = kHopperStep / kHopperCluster * kHopperRowBytes;
#pragma unroll 1
  for (int part = 0; part < parts; ++part)
#pragma unroll 1
    for (int at = rank * kShare; at < bytes; at += kHopperCluster * kShare)
      copy_box_to_all(ring.address() + static_cast<std::uint32_t>(part * bytes + at), x, full,
                      (1 << kHopperCluster) - 1, (stage + part) * kHopperDepth, tile.first + at / kHopperRowBytes);
}

// Copies all stages of a tile: the boxes of weights, which have kBox stages each, and the rows of x. `group` is the
// block's first group of 16 weight rows. If kFill is true, the function fills the rest of the last slot, past the last
// stage, with zeros. Otherwise it copies nothing there.
template <class T, int kBox, bool kFill>
__device__ inline void copy_stages(const HopperMatmul<T>& p, RowsRing& rows, BoxRing& weights, const Tile& tile,
                                   int group, int rank, int stages) {
  const int parts = parts_of<kBox>(tile.rows);
#pragma unroll 1
  for (int s = 0; s < stages; s += parts, rows.advance()) {
    if (s % kBox == 0) {
      weights.wait_empty();
      SharedBarrier& full = weights.full[weights.slot];
      full.arrive_and_expect(kPackedBoxBytes);
      copy_box(weights.address(), p.w, full, s / kBox * (kHopperRowBytes / 2), 0, 0, group, tile.expert);
      weights.advance();
    }
    copy_parts(p.x, rows, tile, rank, s, kFill ? parts : min(parts, stages - s));
  }
}

// A thread's part of a stage of weights, in the form that multiply_held() takes. The first index counts steps of 16
// columns.
using PackedOperand = std::uint32_t[kHopperDepth / 16][4];

// Releases a slot of x in all blocks of the cluster, because each of them has copied a share of it.
__device__ inline void release_rows(const RowsRing& rows, int slot) {
  if (threadIdx.x % kWarp != 0) return;
  for (unsigned block = 0; block < kHopperCluster; ++block) arrive_at_block(rows.empty[slot], block);
}

// Starts the products of one part, which is a stage of kN rows of x. If `keep` is zero, the products overwrite the
// sums. Otherwise they are added to the sums.
template <class T, int kN>
__device__ inline void multiply_part(float (&sum)[kMostProductSums], const PackedOperand& held, const RowsRing& rows,
                                     int part, int keep) {
  const std::uint64_t b = matrix_at(rows.address() + static_cast<std::uint32_t>(part * part_bytes(kN)));
  begin_products();
#pragma unroll
  for (int d = 0; d < kHopperDepth / 16; ++d)
    multiply_held<T, kN>(sum, held[d], b + static_cast<std::uint64_t>(d) * kMatrixStep, d == 0 ? keep : 1);
  end_products();
}

// Multiplies kStages stages, from `stage` on, and adds the products to the sums of a tile of kN rows of x, except that
// products of stage 0 overwrite the sums. The stages fill whole slots of x, each with kParts stages, and belong to one
// box of weights. convert(box, i, to) converts the thread's part of stage + i. If `ends_box` is true, the box is
// released. All products have ended when the function returns.
template <class T, int kN, int kParts, int kStages, class Convert>
__device__ inline void multiply_slots(float (&sum)[kMostProductSums], RowsRing& rows, BoxRing& weights, int stage,
                                      bool ends_box, const Convert& convert) {
  static_assert(kStages % kParts == 0);
  PackedOperand held[kStages];
  int last = 0;  // the slot whose products may still run
#pragma unroll
  for (int i = 0; i < kStages; ++i) {
    convert(weights.data(), i, held[i]);
    if (i == kStages - 1 && ends_box) weights.release();
    if (i % kParts == 0) rows.wait_full();
    multiply_part<T, kN>(sum, held[i], rows, i % kParts, i == 0 ? stage : 1);
    if (i > 0 && i % kParts == 0) {
      wait_for_products<1>();
      release_rows(rows, last);
    }
    if (i % kParts == kParts - 1) {
      last = rows.slot;
      rows.advance();
    }
  }
  wait_for_products<0>();
  release_rows(rows, last);
}

}  // namespace tessera::cuda::moe
