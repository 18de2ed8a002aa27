// Computes a linear of up to 64 rows on Hopper, alone or together with the gate after it (silu_mul or gelu_mul).
//
// Reading a matrix of a small model takes two microseconds and multiplying it takes one. Latency dominates such a
// linear: placing its blocks, waiting for the first columns, and the loop over k. The kernel therefore does three
// things:
//   - Weights do not depend on the preceding kernels, so a block asks for them before it waits (cuda_launch.cuh).
//   - The blocks of a cluster share a tile of y and split k. This fills the multiprocessors and shortens the loop.
//     After the loop each block leaves its sums in its own shared memory. Then each block takes some of the tile's
//     rows, and adds the sums of all blocks for these rows, in the order of the cluster's blocks.
//   - If there are too many blocks for each to have a multiprocessor of its own, two blocks share a multiprocessor, so
//     that one block loads while the other adds.
//
// In the tensor-core products, the A operand is 64 rows of weights and the B operand is rows of x, as in
// hopper_matmul.cuh. An element's sum has the same order for any number of rows. The lower bound of the time is the
// time for reading w from memory.
#pragma once

#include "tessera/ops/adapters/adapter_linear.h"
#include "tessera/ops/cuda/async_copy.cuh"
#include "tessera/ops/cuda/box_copy.cuh"
#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/cuda/cuda_math.cuh"
#include "tessera/ops/cuda/wgmma.cuh"
#include "tessera/ops/linear/linear_gate.cuh"

namespace tessera::cuda::split_linear {

inline constexpr int kWeightRows = 64;  // rows of w in a tile
inline constexpr int kMostBlocks = 4;   // greatest number of blocks in a cluster
inline constexpr int kDepth = 64;       // columns of w and x in a stage; they take 128 bytes of each row
inline constexpr int kRowBytes = kDepth * 2;
inline constexpr int kMostStages = 8;
inline constexpr int kThreads = kWarpgroup + kWarp;  // the last warp starts the copies
// Shared memory holds the sums as [kN, kSumRow], where kN is the number of rows of x. Each row ends with four floats of
// padding, so that the stores of a warp have no bank conflicts.
inline constexpr int kSumRow = kWeightRows + 4;

// The size of a stage in bytes. kN is the number of rows of x in a tile, 32 or 64.
template <int kN>
inline constexpr int kStageBytes = (kN + kWeightRows) * kRowBytes;
template <int kN>
inline constexpr int kSumBytes = kN* kSumRow * 4;

// Takes the place of ShrinkRows in a linear without adapters.
struct NoShrink {
  static constexpr bool kAny = false;
};

// The adapters' x · aᵀ (adapter_shrink, adapter_linear.h), which a linear can compute in further tiles. All slots' rows
// of A form one matrix [slots · modules · rank, k], and kWeightRows of its rows are a tile. These tiles come first in
// the grid. The blocks of a tile that no row needs end at once.
struct ShrinkRows {
  static constexpr bool kAny = true;
  CUtensorMap a;
  AdapterShrinkArgs in;
  int tiles;

  // Returns whether a row of x has the slot of one of the tile's rows of A. All threads of the block call it. It may
  // run before the preceding kernels have ended.
  __device__ bool needs(int tile) const {
    const int values = in.modules * in.rank;
    const int thread = static_cast<int>(threadIdx.x);
    const std::int32_t slot = thread < in.rows ? in.table.slots[thread] : -1;
    const int first = tile * kWeightRows / values;
    const int last = (tile * kWeightRows + kWeightRows - 1) / values;
    return __syncthreads_or(slot >= first && slot <= last) != 0;
  }
  // Stores the sums of eight rows of A, from row `first` on, for a row of x. Sums of other slots' rows are dropped, and
  // those past the rank are 0, because A may hold anything there.
  __device__ void store(int row, int first, const float (&sums)[8]) const {
    const int values = in.modules * in.rank;
    const std::int32_t slot = in.table.slots[row];
    if (slot < 0) return;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int value = first + i - slot * values;
      if (value < 0 || value >= values) continue;
      const bool is_within = value % in.rank < in.ranks[slot * in.modules + value / in.rank];
      in.t[static_cast<std::int64_t>(row) * values + value] = is_within ? sums[i] : 0.0F;
    }
  }
};

template <class T>
struct SplitLinear {
  CUtensorMap x;      // x [m, k]; a copy has kN rows
  CUtensorMap w;      // w [n, k], or with a gate [n / 8, 2, 8, k]: 8 gate rows, 8 up rows, …
  const T* bias;      // [n], or [2n] with a gate; null: no bias
  const T* residual;  // [m, n]; null: no residual
  T* y;               // [m, n]
  int m;
  int n;
  int k;
  int stages;  // number of stages in the ring, at least 2
  Gate gate;
};

// Loads 16 bytes at `address` in the shared memory of block `block` of the cluster.
__device__ inline float4 load_of_block(std::uint32_t address, int block) {
  float4 v;
  asm volatile(
      "{\n"
      ".reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %4, %5;\n"
      "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [there];\n"
      "}\n"
      : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
      : "r"(address), "r"(block));
  return v;
}
__device__ inline float4 load_of_own(std::uint32_t address) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(address));
  return v;
}

// Sets `total` to eight neighbouring sums, each added over all blocks of the cluster. Starts all loads before the first
// addition.
template <int kBlocks>
__device__ inline void add_blocks(float (&total)[8], std::uint32_t address) {
  float4 parts[kBlocks][2];
#pragma unroll
  for (int b = 0; b < kBlocks; ++b)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::uint32_t from = address + static_cast<std::uint32_t>(half * 16);
      parts[b][half] = kBlocks == 1 ? load_of_own(from) : load_of_block(from, b);
    }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float4 sum = parts[0][half];
#pragma unroll
    for (int b = 1; b < kBlocks; ++b) {
      const float4& part = parts[b][half];
      sum.x += part.x, sum.y += part.y, sum.z += part.z, sum.w += part.w;
    }
    total[half * 4] = sum.x, total[half * 4 + 1] = sum.y, total[half * 4 + 2] = sum.z, total[half * 4 + 3] = sum.w;
  }
}

// Does what the overload without `blocks` does, for a cluster whose number of blocks is known only at run time. Starts
// the loads of four of the eight sums at a time. Precondition: blocks <= kMost.
template <int kMost>
__device__ inline void add_blocks(float (&total)[8], std::uint32_t address, int blocks) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float4 parts[kMost];
#pragma unroll
    for (int b = 0; b < kMost; ++b)
      if (b < blocks) parts[b] = load_of_block(address + static_cast<std::uint32_t>(half * 16), b);
    float4 sum = parts[0];
#pragma unroll
    for (int b = 1; b < kMost; ++b)
      if (b < blocks) sum.x += parts[b].x, sum.y += parts[b].y, sum.z += parts[b].z, sum.w += parts[b].w;
    total[half * 4] = sum.x, total[half * 4 + 1] = sum.y, total[half * 4 + 2] = sum.z, total[half * 4 + 3] = sum.w;
  }
}

template <class T>
__device__ inline void add_pack(float (&total)[8], const Pack<T, 8>& pack) {
#pragma unroll
  for (int i = 0; i < 8; ++i) total[i] += to_float(pack.at[i]);
}
template <class T>
__device__ inline void add_pack(float (&total)[8], const T* from) {
  add_pack(total, load_pack<T, 8>(from));
}

// Returns eight columns of the residual from element `at` on. Their content does not matter if there is no residual.
template <class T, class Problem>
__device__ inline Pack<T, 8> residual_at(const Problem& p, std::int64_t at) {
  return p.residual != nullptr ? load_pack<T, 8>(p.residual + at) : Pack<T, 8>{};
}

// Computes and stores eight columns of y, from `column` on. `out` is the first element's index in y. The callback
// add(sums, first) sets `sums` to the sums of eight of the thread's rows of w, from row `first` on. With a gate, the
// thread's rows 0 to 7 are gate rows and its rows 8 to 15 are up rows. `residual` is a parameter, so that the caller
// can load it while it waits for sums.
template <class T, class Problem, class Add>
__device__ inline void store_columns(const Problem& p, int column, std::int64_t out, const Pack<T, 8>& residual,
                                     const Add& add) {
  float total[8];
  add(total, 0);
  if (p.bias != nullptr) add_pack(total, p.bias + column);
  if (p.gate != Gate::kNone) {
    float up[8];
    add(up, 8);
    if (p.bias != nullptr) add_pack(up, p.bias + p.n + column);
#pragma unroll
    for (int j = 0; j < 8; ++j) total[j] = gated<T>(p.gate, total[j], up[j]);
  }
  if (p.residual != nullptr) add_pack(total, residual);
  store_pack(p.y + out, pack_of<T>(total));
}

// Computes y for the block's share of the rows, from the sums of all blocks. A thread of the warpgroup computes eight
// columns of a row at a time.
template <class T, int kN, int kBlocks>
__device__ inline void store_share(const SplitLinear<T>& p, std::uint32_t sums, int first_weight, int rank) {
  constexpr int kShare = (kN + kBlocks - 1) / kBlocks;
  const int weights = p.gate != Gate::kNone ? 16 : 8;  // weight rows of a thread
  const int packs = kWeightRows / weights;
  for (int i = static_cast<int>(threadIdx.x); i < kShare * packs; i += kWarpgroup) {
    const int row = rank * kShare + i / packs;
    const int column = first_weight * 8 / weights + i % packs * 8;
    if (row >= p.m || column >= p.n) continue;
    const std::uint32_t from = sums + static_cast<std::uint32_t>((row * kSumRow + i % packs * weights) * 4);
    const std::int64_t out = static_cast<std::int64_t>(row) * p.n + column;
    store_columns<T>(p, column, out, residual_at<T>(p, out), [&](float(&sums_of)[8], int weight) {
      add_blocks<kBlocks>(sums_of, from + static_cast<std::uint32_t>(weight * 4));
    });
  }
}

// Stores the block's share of the rows of x · aᵀ, as store_share() does for y.
template <int kN, int kBlocks>
__device__ inline void store_share_of_shrink(const ShrinkRows& adapters, std::uint32_t sums, int first_value,
                                             int rank) {
  constexpr int kShare = (kN + kBlocks - 1) / kBlocks;
  constexpr int kPacks = kWeightRows / 8;
  for (int i = static_cast<int>(threadIdx.x); i < kShare * kPacks; i += kWarpgroup) {
    const int row = rank * kShare + i / kPacks;
    if (row >= adapters.in.rows) continue;
    float total[8];
    add_blocks<kBlocks>(total, sums + static_cast<std::uint32_t>((row * kSumRow + i % kPacks * 8) * 4));
    adapters.store(row, first_value + i % kPacks * 8, total);
  }
}

// Stores the sums of a warpgroup to shared memory as [kN, kSumRow].
template <int kN>
__device__ inline void store_sums(const float (&sum)[kN / 2], std::uint32_t sums) {
  const int thread = static_cast<int>(threadIdx.x);
  const int weight = thread / kWarp * 16 + thread % kWarp / 4;
  const int row = thread % 4 * 2;
  const std::uint32_t to = sums + static_cast<std::uint32_t>((row * kSumRow + weight) * 4);
#pragma unroll
  for (int j = 0; j < kN / 8; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      asm volatile(
          "st.shared.f32 [%0], %1;" ::"r"(to + static_cast<std::uint32_t>(((j * 8 + i % 2) * kSumRow + i / 2 * 8) * 4)),
          "f"(sum[4 * j + i])
          : "memory");
}

// Computes one tile with a cluster of kBlocks blocks. gridDim.x is the number of tiles times kBlocks. Adapters is
// ShrinkRows if rows may have adapters, else NoShrink. Preconditions: m <= kN; k and n are multiples of 8; k has at
// least one stage for each block.
template <class T, int kN, int kBlocks, class Adapters>
__global__ void __launch_bounds__(kThreads)
    linear_split(const __grid_constant__ SplitLinear<T> p, const __grid_constant__ Adapters adapters) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char unaligned[];
  __shared__ SharedBarrier full[kMostStages], empty[kMostStages];
  const std::uint32_t ring = (shared_address(unaligned) + 1023) / 1024 * 1024;
  const int rank = static_cast<int>(blockIdx.x) % kBlocks;
  int tile = static_cast<int>(blockIdx.x) / kBlocks;
  bool shrinks = false;  // whether the tile is one of A
  if constexpr (Adapters::kAny) {
    shrinks = tile < adapters.tiles;
    if (shrinks && !adapters.needs(tile)) return;
    if (!shrinks) tile -= adapters.tiles;
  }
  const int first_weight = tile * kWeightRows;
  const int all_stages = (p.k + kDepth - 1) / kDepth;
  const int first = all_stages * rank / kBlocks;
  const int count = all_stages * (rank + 1) / kBlocks - first;  // number of stages that this block multiplies
  const auto weights_at = [&](int slot) { return ring + static_cast<std::uint32_t>(slot * kStageBytes<kN>); };
  const auto rows_at = [&](int slot) { return weights_at(slot) + kWeightRows * kRowBytes; };
  const auto copy_weights = [&](int slot, int stage) {
    full[slot].arrive_and_expect(kStageBytes<kN>);  // elements outside w or x arrive as zeros
    if constexpr (Adapters::kAny) {
      if (shrinks) return copy_box(weights_at(slot), adapters.a, full[slot], stage * kDepth, first_weight);
    }
    if (p.gate == Gate::kNone) {
      copy_box(weights_at(slot), p.w, full[slot], stage * kDepth, first_weight);
    } else {
      copy_box(weights_at(slot), p.w, full[slot], stage * kDepth, 0, 0, first_weight / 16, 0);
    }
  };
  const auto copy_rows = [&](int slot, int stage) { copy_box(rows_at(slot), p.x, full[slot], stage * kDepth, 0); };

  const bool is_copying = threadIdx.x == kWarpgroup;
  const int ahead = min(p.stages, count);
  if (is_copying) {
    prefetch_map(p.w);
    prefetch_map(p.x);
    if constexpr (Adapters::kAny) prefetch_map(adapters.a);
    for (int s = 0; s < p.stages; ++s) {
      full[s].init(1);
      empty[s].init(kWarpgroup / kWarp);
    }
    SharedBarrier::make_visible();
    for (int s = 0; s < ahead; ++s) copy_weights(s, first + s);
  }
  __syncwarp();
  let_next_begin();
  __syncthreads();
  wait_for_previous();

  if (threadIdx.x < kWarpgroup) {
    float sum[kN / 2];
    int slot = 0;
    int turn = 0;
    int last = 0;
    for (int s = 0; s < count; ++s) {
      full[slot].wait(turn & 1);
      const std::uint64_t a = matrix_at(weights_at(slot));
      const std::uint64_t b = matrix_at(rows_at(slot));
      begin_products();
#pragma unroll
      for (int d = 0; d < kDepth / 16; ++d) multiply<T, kN>(sum, a + d * kMatrixStep, b + d * kMatrixStep, s + d);
      end_products();
      wait_for_products<1>();
      if (s > 0 && threadIdx.x % kWarp == 0) empty[last].arrive();
      last = slot;
      if (++slot == p.stages) slot = 0, ++turn;
    }
    wait_for_products<0>();
    hold(sum);
    // The sums overwrite stages of the ring. So all warps must have read these stages before.
    asm volatile("bar.sync 1, %0;" ::"n"(kWarpgroup) : "memory");
    store_sums<kN>(sum, ring);
  } else if (is_copying) {
    let_copies_see_stores();
    for (int s = 0; s < ahead; ++s) copy_rows(s, first + s);
    for (int s = ahead, slot = 0, turn = 0; s < count; ++s) {
      empty[slot].wait(turn & 1);
      copy_weights(slot, first + s);
      copy_rows(slot, first + s);
      if (++slot == p.stages) slot = 0, ++turn;
    }
  }
  __syncwarp();
  if constexpr (kBlocks > 1) {
    sync_cluster();
  } else {
    __syncthreads();
  }
  if (threadIdx.x < kWarpgroup && !shrinks) store_share<T, kN, kBlocks>(p, ring, first_weight, rank);
  if constexpr (Adapters::kAny) {
    if (threadIdx.x < kWarpgroup && shrinks) store_share_of_shrink<kN, kBlocks>(adapters, ring, first_weight, rank);
  }
  if constexpr (kBlocks > 1) {
    __syncwarp();
    sync_cluster();  // other blocks may still read this block's sums
  }
#endif
}

}  // namespace tessera::cuda::split_linear
