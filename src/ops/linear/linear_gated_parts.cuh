// Lets the linear with a gate (linear_gated.cuh) add the changes that low-rank adapters make (adapter_linear.h), so
// that the linear's result need not be stored before the gate. At 8192 tokens, storing, changing and reading this
// result is two thirds of what adapters cost.
//
// The change of a row is (scale · t) · b, with t from adapter_shrink. So it takes the form of additional columns of k:
// scale · t are columns of x, and b are columns of w. Rows of a tile may have different adapters. The tile has a part
// for each slot in use. In a part, the rows of all other slots are zero. A part consists of stages of the ring, each
// with kPartRanks ranks. Such a stage adds as much work as kHopperDepth columns of k.
//
//   stage of x  [tile_rows, kHopperDepth]   the gate's scale · t rounded to T, the rounding errors, then the same two
//                                           of the up projection: kPartRanks columns each
//   stage of w  2 x [kPartRanks, kHopperWeightRows]   b with zeros for rows of the up projection, then b with zeros for
//                                                     rows of the gate
//
// make_parts() writes the stages of x to global memory. The copy engine makes the stages of w from b, in which the
// columns of a rank are contiguous. So w is the transposed operand of a product.
#pragma once

#include <cstdint>

#include "tessera/ops/adapters/adapter_change.cuh"
#include "tessera/ops/adapters/adapter_linear.h"
#include "tessera/ops/linear/hopper_matmul.cuh"

namespace tessera::cuda::gated_linear {

inline constexpr int kPartRanks = kHopperDepth / 4;
inline constexpr int kMostSlots = 1024;  // as many as AdapterLimits allows
inline constexpr int kMostTiles = 128;
inline constexpr int kPartThreads = kHopperRows;
inline constexpr int kPartBlocks = 8;  // blocks of make_parts() for each tile
// A square of b in shared memory: eight columns of all of a stage's ranks (squares_at()).
inline constexpr int kSquareBytes = kPartRanks * 8 * 2;
inline constexpr int kPartWeightBytes = kHopperWeightRows * kPartRanks * 2;  // b of the gate, or of the up projection

// Takes the place of Parts in a linear without adapters.
struct NoParts {
  static constexpr bool kAny = false;
};

// The parts of all tiles, one tile after the other.
template <class T>
struct Parts {
  static constexpr bool kAny = true;
  CUtensorMap x;         // x [parts · depths · tile_rows, kHopperDepth]; a copy has tile_rows / kHopperCluster rows
  CUtensorMap gate;      // the gate's columns of b as [slots, n / 8, 1, rank, 8]; a box has 2 in place of the 1
  CUtensorMap up;        // the up projection's columns of b, in the same form
  std::int32_t* firsts;  // [tiles], the tile's first part
  std::int32_t* counts;  // [tiles], the tile's number of parts
  std::int32_t* slots;   // [parts], ascending in a tile
  T* t;                  // the elements of x
  int most;              // the number of parts for which there is memory
  int depths;            // the number of stages of a part
  int tile_rows;
  std::int32_t modules[2];  // the modules of the gate and of the up projection
};

// Writes the parts of tile blockIdx.x. The blocks of a tile divide its elements of Parts::x. Each block looks at all
// rows up to the tile's last one, to find where the tile's parts begin. Preconditions: at most kMostTiles tiles and
// kMostSlots slots, memory for all parts, and values of scale · t that are within T's range.
template <class T>
__global__ void __launch_bounds__(kPartThreads)
    make_parts(const AdapterAddArgs in, const __grid_constant__ Parts<T> parts) {
  __shared__ std::uint32_t used[kMostTiles][kMostSlots / 32];  // a set bit means that the tile uses the slot
  __shared__ std::int32_t slots[kHopperRows];                  // the slot of each of the tile's rows; negative: none
  __shared__ std::int32_t part_of[kHopperRows];
  __shared__ std::int32_t first;
  let_next_begin();
  const int thread = static_cast<int>(threadIdx.x);
  const int tile = static_cast<int>(blockIdx.x);
  const int words = (in.num_slots + 31) / 32;
  const int first_row = tile * parts.tile_rows;
  const int end_row = static_cast<int>(min(in.rows, std::int64_t{first_row + parts.tile_rows}));
  for (int i = thread; i < (tile + 1) * words; i += kPartThreads) used[i / words][i % words] = 0;
  slots[thread] = -1;
  if (thread == 0) first = 0;
  __syncthreads();
#pragma unroll 8
  for (int row = thread; row < end_row; row += kPartThreads) {
    const std::int32_t slot = in.table.slots[row];
    if (slot >= 0) atomicOr(&used[row / parts.tile_rows][slot / 32], 1U << slot % 32);
    if (row >= first_row) slots[row - first_row] = slot;
  }
  __syncthreads();
  int before = 0;
  for (int i = thread; i < tile * words; i += kPartThreads) before += __popc(used[i / words][i % words]);
  if (before > 0) atomicAdd(&first, before);
  const std::int32_t slot = slots[thread];
  std::int32_t part = 0;   // the number of used slots before this one
  std::int32_t count = 0;  // the number of used slots
  for (int word = 0; word < words; ++word) {
    const std::uint32_t bits = used[tile][word];
    const int bits_before = min(max(slot - word * 32, 0), 32);
    count += __popc(bits);
    part += __popc(bits_before == 32 ? bits : bits & ((1U << bits_before) - 1));
  }
  wait_for_previous();
  __syncthreads();
  count = min(count, parts.most - first);  // stays within the memory, whatever the table says
  part_of[thread] = slot >= 0 && part < count ? part : -1;
  if (blockIdx.y == 0 && thread == 0) {
    parts.firsts[tile] = first;
    parts.counts[tile] = count;
  }
  if (blockIdx.y == 0 && part_of[thread] >= 0) parts.slots[first + part] = slot;
  __syncthreads();

  // An item is eight ranks of a row for the gate or the up projection.
  const int items = count * parts.depths * parts.tile_rows * 4;
  for (int item = static_cast<int>(blockIdx.y) * kPartThreads + thread; item < items;
       item += kPartBlocks * kPartThreads) {
    const int half = item % 2;
    const int matrix = item / 2 % 2;
    const int row = item / 4 % parts.tile_rows;
    const int stage = item / 4 / parts.tile_rows;  // of the tile
    std::uint32_t rounded[4] = {};
    std::uint32_t rest[4] = {};
    if (part_of[row] == stage / parts.depths) {
      const std::int32_t module = parts.modules[matrix];
      const float scale = in.scales[slots[row] * in.modules + module];
      const int from = stage % parts.depths * kPartRanks + half * 8;
      const float* const t = in.t + (std::int64_t{first_row + row} * in.modules + module) * in.rank;
      const auto at = [&](int r) { return r < in.rank ? scale * t[r] : 0.0F; };
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const SplitPair both = split_two<T>(at(from + 2 * i), at(from + 2 * i + 1));
        rounded[i] = both.rounded;
        rest[i] = both.rest;
      }
    }
    const std::int64_t row_of_x = (std::int64_t{first} * parts.depths + stage) * parts.tile_rows + row;
    T* const to = parts.t + row_of_x * kHopperDepth + matrix * 2 * kPartRanks + half * 8;
    *reinterpret_cast<uint4*>(to) = make_uint4(rounded[0], rounded[1], rounded[2], rounded[3]);
    *reinterpret_cast<uint4*>(to + kPartRanks) = make_uint4(rest[0], rest[1], rest[2], rest[3]);
  }
}

// Starts the copies of a tile's parts. `group` is the block's first group of eight columns of the gate. One thread
// calls this function.
template <class T>
__device__ inline void copy_parts(const Parts<T>& parts, const HopperRing& ring, RingPlace& at, int tile, int group) {
  const int rank = static_cast<int>(block_in_cluster());
  const int share = parts.tile_rows / kHopperCluster;
  const int bytes = 2 * kPartWeightBytes + parts.tile_rows * kHopperRowBytes;
  const int first = parts.firsts[tile];
  const int count = parts.counts[tile];
  for (int part = first; part < first + count; ++part) {
    const int slot = parts.slots[part];
    for (int depth = 0; depth < parts.depths; ++depth, at.advance()) {
      SharedBarrier& full = ring.full[at.slot];
      if (at.turn > 0) ring.empty[at.slot].wait((at.turn - 1) & 1);
      full.arrive_and_expect(static_cast<std::uint32_t>(bytes));
      // Each copy fills the places of two matrices. The other matrix lies outside the tensor, so its place gets zeros.
      copy_box(ring.weights(at.slot), parts.gate, full, 0, depth * kPartRanks, 0, group, slot);
      copy_box(ring.weights(at.slot) + kPartWeightBytes, parts.up, full, 0, depth * kPartRanks, -1, group, slot);
      const int row = (part * parts.depths + depth) * parts.tile_rows + rank * share;
      copy_box_to_all(ring.rows(at.slot) + static_cast<std::uint32_t>(rank * share * kHopperRowBytes), parts.x, full,
                      (1 << kHopperCluster) - 1, 0, row);
    }
  }
}

// Adds the products of `stages` stages of parts to a tile's sums.
template <class T>
__device__ inline void multiply_parts(float (&sum)[kMostProductSums], const HopperRing& ring, RingPlace& at, int stages,
                                      int warpgroup, int rows) {
  with_tile_size(rows, [&]<int kN>() {
    for (int s = 0; s < stages; ++s, at.advance()) {
      ring.full[at.slot].wait(at.turn & 1);
      const std::uint32_t weights =
          ring.weights(at.slot) + static_cast<std::uint32_t>(warpgroup * kPartWeightBytes / kHopperWarpgroups);
      const std::uint64_t b = matrix_at(ring.rows(at.slot));
      begin_products();
#pragma unroll
      for (int d = 0; d < 4; ++d) {  // the gate's rounded values and errors, then those of the up projection
        const std::uint64_t a = squares_at<128, kSquareBytes>(weights + d / 2 * kPartWeightBytes);
        multiply<T, kN, /*kTurned=*/true>(sum, a, b + d * kMatrixStep, 1);
      }
      end_products();
      wait_for_products<0>();
      ring.release(at.slot);
    }
  });
}

}  // namespace tessera::cuda::gated_linear
