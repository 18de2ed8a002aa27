// Computes a linear of many rows and the gate after it in one kernel on Hopper (hopper_matmul.cuh):
// y = a(x · gᵀ) ⊙ (x · uᵀ), where a is the activation. Adapters may change both products (linear_gated_parts.cuh). w
// has n gate rows g, then n up rows u. The linear's own result is twice as wide as y, and is never stored and read
// again. At 8192 tokens this saves a fifth of a layer's memory traffic.
//
// In shared memory, the tensor map of w places 8 gate rows beside the 8 up rows that belong to the same columns of y,
// so that a thread has both sums of an element. The launch has as many blocks as the device runs at once. The tiles of
// y form a table, and every kGroup rows of this table are a group. Clusters take the tiles group by group, and within a
// group column by column, so that concurrent tiles share rows of x and w in L2.
//
// The lower bound of the time is 4 · m · n · k operations at the 989 dense TFLOP/s of an H200.
#pragma once

#include "tessera/ops/cuda/cuda_activation.cuh"
#include "tessera/ops/linear/hopper_matmul.cuh"
#include "tessera/ops/linear/linear_gated_parts.cuh"

namespace tessera::cuda::gated_linear {

inline constexpr int kBlockColumns = kHopperWeightRows / 2;  // columns of y in a block
inline constexpr int kClusterColumns = kHopperCluster * kBlockColumns;
inline constexpr int kGroup = 8;
// A warpgroup computes kResultColumns columns of y for all rows of a tile.
inline constexpr int kResultColumns = 32;
inline constexpr int kResultRowBytes = kResultColumns * 2;
inline constexpr int kResultBytes = kHopperRows * kResultRowBytes;
inline constexpr int kSharedBytes = 1024 + kHopperStages * kHopperStageBytes + kHopperWarpgroups * kResultBytes;
static_assert(kSharedBytes <= 232448 - 1024, "a block may have 232448 bytes; 1024 of them hold the barriers");

template <class T>
struct GatedLinear {
  CUtensorMap x;  // x [m, k]; a copy has tile_rows / kHopperCluster rows
  CUtensorMap w;  // w as [n / 8, 2, 8, k]; a copy has kHopperWeightRows rows: 8 gate rows, 8 up rows, …
  const T* bias;  // [2n]; null: no bias
  CUtensorMap y;  // y [m, n]; a store has tile_rows rows and kResultColumns columns, not swizzled
  int m;
  int n;
  int k;
  int tile_rows;  // rows of x in a tile, a multiple of kHopperStep
};

struct Item {
  int first_row;  // the item's first row of x
  int rows;
  int column;  // the cluster's first column of y
};

template <class T>
struct Items {
  int row_tiles;
  int across;
  __device__ explicit Items(const GatedLinear<T>& p)
      : row_tiles((p.m + p.tile_rows - 1) / p.tile_rows), across((p.n + kClusterColumns - 1) / kClusterColumns) {}
  __device__ int count() const { return row_tiles * across; }
  __device__ Item at(const GatedLinear<T>& p, int i) const {
    const int group = i / (kGroup * across);
    const int tiles = min(kGroup, row_tiles - group * kGroup);  // number of row tiles in this group
    const int within = i - group * kGroup * across;
    const int first = (group * kGroup + within % tiles) * p.tile_rows;
    return {first, min(p.tile_rows, p.m - first), within / tiles * kClusterColumns};
  }
};

// Starts all copies of the block, in the order in which the stages are used. One thread calls this function.
template <class T, class Changes>
__device__ inline void copy_tiles(const GatedLinear<T>& p, const Changes& changes, const HopperRing& ring,
                                  const Items<T>& items, int stages) {
  const int rank = static_cast<int>(block_in_cluster());
  const int share = p.tile_rows / kHopperCluster;
  const int bytes = (kHopperWeightRows + p.tile_rows) * kHopperRowBytes;  // with rows outside x, which are zeros
  RingPlace at;
  for (int i = static_cast<int>(blockIdx.x) / kHopperCluster; i < items.count();
       i += static_cast<int>(gridDim.x) / kHopperCluster) {
    const Item item = items.at(p, i);
    const int group = (item.column + rank * kBlockColumns) / 8;
    for (int s = 0; s < stages; ++s, at.advance()) {
      SharedBarrier& full = ring.full[at.slot];
      if (at.turn > 0) ring.empty[at.slot].wait((at.turn - 1) & 1);
      full.arrive_and_expect(static_cast<std::uint32_t>(bytes));
      copy_box(ring.weights(at.slot), p.w, full, s * kHopperDepth, 0, 0, group, 0);
      copy_box_to_all(ring.rows(at.slot) + static_cast<std::uint32_t>(rank * share * kHopperRowBytes), p.x, full,
                      (1 << kHopperCluster) - 1, s * kHopperDepth, item.first_row + rank * share);
    }
    if constexpr (Changes::kAny) copy_parts(changes, ring, at, item.first_row / p.tile_rows, group);
  }
}

// Returns two elements of y, packed. The gate is a template parameter because the loop over a tile's results is
// unrolled, and the code of all gates together would not fit the instruction cache.
template <class T, class Gate>
__device__ inline std::uint32_t activate(float2 gate, float2 up) {
  gate = rounded_two<T>(gate.x, gate.y);
  up = rounded_two<T>(up.x, up.y);
  const float2 activated = rounded_two<T>(Gate{}(gate.x), Gate{}(gate.y));
  return pack_two<T>(activated.x * up.x, activated.y * up.y);
}

// Stores a warpgroup's results of a tile. A thread has sums of neighbouring rows. The results go through shared memory
// to y. `column` is the warpgroup's first column.
template <class T, class Gate>
__device__ inline void store_results(const GatedLinear<T>& p, const float (&sum)[kMostProductSums], const Item& item,
                                     int column, int warpgroup, std::uint32_t results) {
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroup;
  const int lane = thread % kWarp;
  const int warp = thread / kWarp;
  const int mine = column + warp * 8 + lane / 4;
  const auto bias_of = [&](int c) { return p.bias == nullptr || mine >= p.n ? 0.0F : to_float(p.bias[c]); };
  const float bias[2] = {bias_of(mine), bias_of(p.n + mine)};
  const auto sync_warpgroup = [&] {
    asm volatile("bar.sync %0, %1;" ::"r"(1 + warpgroup), "n"(kWarpgroup) : "memory");
  };
  if (thread == 0) wait_for_stores_to_read();  // the previous tile's stores read `results`
  sync_warpgroup();
#pragma unroll
  for (int pass = 0; pass < kHopperRows / kHopperStep; ++pass) {
    if (pass * kHopperStep >= item.rows) break;
    std::uint32_t matrices[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float* const s = &sum[(pass * 4 + j) * 4];
      matrices[j] =
          activate<T, Gate>(make_float2(s[0] + bias[0], s[1] + bias[0]), make_float2(s[2] + bias[1], s[3] + bias[1]));
    }
    store_matrices<true>(
        results + static_cast<std::uint32_t>((pass * kHopperStep + lane) * kResultRowBytes + warp * 16), matrices);
  }
  let_copies_see_shared_stores();
  sync_warpgroup();
  if (thread == 0 && column < p.n) store_box(p.y, results, column, item.first_row);
}

// Computes y, tile by tile. Changes is Parts<T> if rows may have adapters, else NoParts. Preconditions: k and n are
// multiples of 8, and gridDim.x is a multiple of kHopperCluster.
template <class T, class Gate, class Changes>
__global__ void __launch_bounds__(kHopperThreads, 1)
    linear_gated(const __grid_constant__ GatedLinear<T> p, const __grid_constant__ Changes changes) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char unaligned[];
  __shared__ SharedBarrier full[kHopperStages], empty[kHopperStages];
  unsigned char* const shared = unaligned + (1024 - shared_address(unaligned) % 1024) % 1024;
  const HopperRing ring{shared_address(shared), full, empty};
  const int warpgroup = static_cast<int>(threadIdx.x) / kWarpgroup;
  if (threadIdx.x == 0) {
    prepare(ring);
    prefetch_map(p.x);
    prefetch_map(p.w);
    prefetch_map(p.y);
    if constexpr (Changes::kAny) {
      prefetch_map(changes.x);
      prefetch_map(changes.gate);
      prefetch_map(changes.up);
    }
  }
  let_next_begin();
  sync_cluster();
  wait_for_previous();

  const Items<T> items(p);
  const int stages = (p.k + kHopperDepth - 1) / kHopperDepth;
  if (warpgroup == kHopperWarpgroups) {
    keep_registers<24, false>();
    if (threadIdx.x % kWarpgroup == 0) {
      let_copies_see_stores();
      copy_tiles(p, changes, ring, items, stages);
    }
    __syncwarp();
  } else {
    keep_registers<240, true>();
    const int rank = static_cast<int>(block_in_cluster());
    const std::uint32_t results =
        ring.base + kHopperStages * kHopperStageBytes + static_cast<std::uint32_t>(warpgroup) * kResultBytes;
    RingPlace at;
    for (int i = static_cast<int>(blockIdx.x) / kHopperCluster; i < items.count();
         i += static_cast<int>(gridDim.x) / kHopperCluster) {
      const Item item = items.at(p, i);
      float sum[kMostProductSums];
      int parts = 0;
      if constexpr (Changes::kAny) parts = changes.counts[item.first_row / p.tile_rows];
      multiply_tile_of<T>(sum, ring, at, stages, warpgroup, item.rows);
      if constexpr (Changes::kAny) multiply_parts<T>(sum, ring, at, parts * changes.depths, warpgroup, item.rows);
      const int column = item.column + rank * kBlockColumns + warpgroup * kResultColumns;
      store_results<T, Gate>(p, sum, item, column, warpgroup, results);
    }
    if (threadIdx.x % kWarpgroup == 0) wait_for_stores();
  }
  // Other blocks may still write to this block's shared memory and signal its barriers, so this block waits before it
  // exits.
  sync_cluster();
#endif
}

}  // namespace tessera::cuda::gated_linear
