// quantised_linear of any number of rows on Hopper, alone and with the gate behind it: warpgroups convert w to bfloat16
// or float16 in registers, from where a wgmma instruction can take its first matrix.
//
// A block computes 128 rows of w by kN rows of x. A warp copies stages of 128 columns of k to a ring in shared memory,
// and asks for weights before the kernels ahead have ended. Each of two warpgroups converts 64 rows of w and multiplies
// them by all rows of x; one converts a stage while the products of the other run. The blocks of a cluster do one of
// two things:
//   - with few tiles they split k. At the end each block leaves its sums in its own shared memory, and adds the sums of
//     all blocks for its share of the rows of x (linear_split.cuh);
//   - with many tiles two blocks compute neighbouring tiles of w for the same rows of x, and share the copies of x.
//
// A group of columns that lies within a stage has its scale multiplied with the values, rounded to T; NVFP4's products
// are exact. A scale of whole rows is multiplied with sums, in float32.
//
// Bounds: few rows read w once; converting takes about three instructions a value, which one multiprocessor issues for
// 40 values a cycle, so that less than half of the multiprocessors' issue slots suffice at the speed of memory for 8
// bits, and nearly all for 4. With many rows the products of a stage last 1024 cycles, converting takes half of them.
#pragma once

#include "tessera/ops/cuda/box_copy.cuh"
#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/cuda/wgmma.cuh"
#include "tessera/ops/linear/linear_split.cuh"
#include "tessera/ops/quantised/quantised_values.cuh"

namespace tessera::cuda::quantised {

inline constexpr int kTileWeights = 128;  // rows of w in a tile
inline constexpr int kTileWarpgroups = 2;
inline constexpr int kStageColumns = 128;
inline constexpr int kHalfColumns = 64;  // columns of x in a box: rows of 128 bytes
inline constexpr int kStageSteps = kStageColumns / 16;
inline constexpr int kMostTileStages = 8;
inline constexpr int kMostSplit = 4;
inline constexpr int kTileThreads = kTileWarpgroups * kWarpgroup + kWarp;  // the last warp starts the copies
inline constexpr int kTileWarps = kTileWarpgroups * kWarpgroup / kWarp;    // warps that multiply
inline constexpr int kTileSumRow = kTileWeights + 4;

inline constexpr int stage_row_bytes(Values values) { return is_packed(values) ? kStageColumns / 2 : kStageColumns; }
template <Values kValues>
inline constexpr int kWeightStage = kTileWeights* stage_row_bytes(kValues);
template <Values kValues, int kN>
inline constexpr int kTileStage = kWeightStage<kValues> + kN* kStageColumns * 2;

template <class T>
struct TiledQuantised {
  CUtensorMap x;       // [m, k], boxes of kHalfColumns by kN rows, or by half of them where blocks share x
  CUtensorMap values;  // [n, bytes of a row]; gated: groups of 8 gates and their ups
  QuantisedMatrix w;   // [n or 2n, k]
  const T* bias;       // [n or 2n]; null: no bias
  const T* residual;   // [m, n]; null: no residual
  T* y;                // [m, n]
  int m;
  int n;
  int k;
  int row_tiles;
  int split;    // blocks of a cluster that split k
  bool shared;  // two blocks of a cluster share x
  int stages;   // stages of the ring
  Gate gate;
};

// The place of a byte of a stage's weights in shared memory: the copy engine permutes 16-byte chunks within lines of
// 128 bytes by the line's number.
__device__ inline std::uint32_t swizzled(int byte) { return static_cast<std::uint32_t>(byte ^ (byte >> 7 & 7) << 4); }
__device__ inline std::uint32_t load_shared_u16(std::uint32_t address) {
  std::uint16_t v;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(address));
  return v;
}
__device__ inline std::uint32_t load_shared_u8(std::uint32_t address) {
  std::uint32_t v;
  asm volatile("ld.shared.u8 %0, [%1];" : "=r"(v) : "r"(address));
  return v;
}

// The scales of one row of w in a stage, in both halves of registers. kGroups is their number; 0: scales are of sums.
template <class T, Values kValues, int kGroups>
struct StageScales {
  static constexpr int kCount = kGroups == 0 ? 1 : kGroups;
  std::uint32_t scales[kCount];
  std::uint32_t offsets[kValues == Values::kInt4 ? kCount : 1];

  __device__ void load(const QuantisedMatrix& w, int row, int stage) {
    constexpr float kGrow = kScaleGrow<T, kValues>;
    if constexpr (kValues != Values::kInt4) offsets[0] = offset_of<T, kValues>(0);
    if constexpr (kValues == Values::kE2M1) {
      static_assert(kGroups == 8);
      const uint2 codes = *reinterpret_cast<const uint2*>(w.scales + row * w.num_groups + stage * kGroups);
#pragma unroll
      for (int i = 0; i < kCount; ++i)
        scales[i] = both_halves<T>(
            number_of_e4m3(static_cast<std::uint8_t>((i < 4 ? codes.x : codes.y) >> (i % 4 * 8) & 255u)) * kGrow);
    } else if constexpr (kGroups > 0) {
      const auto groups = static_cast<int>(w.num_groups);
      const std::int64_t scale_row = static_cast<std::int64_t>(row / static_cast<int>(w.format.group_rows)) * groups;
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const int k = stage * kStageColumns + i * (kStageColumns / kCount);
        const int group = min(groups - 1, groups == 1 ? 0 : k / static_cast<int>(w.format.group_cols));
        scales[i] = both_halves<T>(reinterpret_cast<const float*>(w.scales)[scale_row + group] * kGrow);
        if constexpr (kValues == Values::kInt4)
          offsets[i] =
              offset_of<T, kValues>(w.zeros == nullptr ? 8 : w.zeros[static_cast<std::int64_t>(row) * groups + group]);
      }
    }
  }
};

// A thread's part of a stage of weights, in the form that multiply_held() takes: steps of 16 columns.
using HeldStage = std::uint32_t[kStageSteps][4];

// Converts rows `row` and `row` + 8 of a stage at `weights` in shared memory.
template <class T, Values kValues, int kGroups>
__device__ inline void convert_stage(std::uint32_t weights, int row,
                                     const StageScales<T, kValues, kGroups> (&scales)[2], HeldStage& to) {
  constexpr int kRowBytes = stage_row_bytes(kValues);
  const int quad = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int step = 0; step < kStageSteps; ++step)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // A thread has columns 2 q, 2 q + 1, 2 q + 8 and 2 q + 9 of a step, q being its number in the quad.
      std::uint32_t pairs[2];
      const int first = (row + half * 8) * kRowBytes + step * (kRowBytes / kStageSteps);
      if constexpr (is_packed(kValues)) {
        const std::uint32_t at = weights + swizzled(first) + static_cast<std::uint32_t>(quad);
        pairs[0] = convert_byte<T, kValues>(load_shared_u8(at));
        pairs[1] = convert_byte<T, kValues>(load_shared_u8(at + 4));
      } else {
        const std::uint32_t at = weights + swizzled(first) + static_cast<std::uint32_t>(quad) * 2;
        convert_bytes<T, kValues>(load_shared_u16(at) | load_shared_u16(at + 8) << 16, pairs);
      }
      constexpr int kOffsets = kValues == Values::kInt4 ? StageScales<T, kValues, kGroups>::kCount : 1;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const std::uint32_t offset = scales[half].offsets[step * kOffsets / kStageSteps];
        if constexpr (kGroups == 0) {
          pairs[i] = exact<T, kValues>(pairs[i], offset);
        } else {
          pairs[i] = scaled<T, kValues>(pairs[i], offset, scales[half].scales[step * kGroups / kStageSteps]);
        }
        to[step][2 * i + half] = pairs[i];
      }
    }
}

// Stores the sums of a warpgroup to shared memory as [kN, kTileSumRow], each times its row's factor.
template <int kN>
__device__ inline void store_tile_sums(const float (&sum)[kN / 2], std::uint32_t sums, int weight,
                                       const float (&factor)[2]) {
  const std::uint32_t to = sums + threadIdx.x % 4 * 2 * kTileSumRow * 4 + static_cast<std::uint32_t>(weight) * 4;
#pragma unroll
  for (int j = 0; j < kN / 8; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      asm volatile("st.shared.f32 [%0], %1;" ::"r"(
                       to + static_cast<std::uint32_t>(((j * 8 + i % 2) * kTileSumRow + i / 2 * 8) * 4)),
                   "f"(sum[4 * j + i] * factor[i / 2])
                   : "memory");
}

// Turns the sums of the block's share of rows into y. A thread has eight columns at a time.
template <class T, int kN, int kBlocks>
__device__ inline void store_tile_share(const TiledQuantised<T>& p, std::uint32_t sums, int first_row, int first_weight,
                                        int rank) {
  constexpr int kShare = kN / kBlocks;
  const bool is_gated = p.gate != Gate::kNone;
  const int weights = is_gated ? 16 : 8;  // rows of w of a thread
  const int packs = kTileWeights / weights;
  for (int i = static_cast<int>(threadIdx.x); i < kShare * packs; i += kTileWarps * kWarp) {
    const int at = rank * kShare + i / packs;
    const int row = first_row + at;
    const int column = first_weight * 8 / weights + i % packs * 8;
    if (row >= p.m || column >= p.n) continue;
    const std::uint32_t from = sums + static_cast<std::uint32_t>((at * kTileSumRow + i % packs * weights) * 4);
    const std::int64_t out = static_cast<std::int64_t>(row) * p.n + column;
    float total[8];
    split_linear::add_blocks<kBlocks>(total, from);
    if (p.bias != nullptr) split_linear::add_pack(total, p.bias + column);
    if (is_gated) {
      float up[8];
      split_linear::add_blocks<kBlocks>(up, from + 8 * 4);
      if (p.bias != nullptr) split_linear::add_pack(up, p.bias + p.n + column);
#pragma unroll
      for (int j = 0; j < 8; ++j) total[j] = gated<T>(p.gate, total[j], up[j]);
    }
    if (p.residual != nullptr) split_linear::add_pack(total, p.residual + out);
    *reinterpret_cast<uint4*>(p.y + out) = make_uint4(pack_two<T>(total[0], total[1]), pack_two<T>(total[2], total[3]),
                                                      pack_two<T>(total[4], total[5]), pack_two<T>(total[6], total[7]));
  }
}

// Grid: clusters of `split` blocks, or of two that share x; a cluster's blocks are neighbours. Rows of x change fastest
// from cluster to cluster. Preconditions: n is a multiple of 8, k of 32.
template <class T, Values kValues, int kGroups, int kN>
__global__ void __launch_bounds__(kTileThreads, 1) quantised_tiles(const __grid_constant__ TiledQuantised<T> p) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char unaligned[];
  __shared__ SharedBarrier full[kMostTileStages], empty[kMostTileStages];
  const std::uint32_t ring = (shared_address(unaligned) + 1023) / 1024 * 1024;
  const int cluster = p.shared ? 2 : p.split;
  const int rank = static_cast<int>(blockIdx.x) % cluster;
  const int item = static_cast<int>(blockIdx.x) / cluster;
  const int first_row = item % p.row_tiles * kN;
  const int tile = p.shared ? item / p.row_tiles * 2 + rank : item / p.row_tiles;
  const int first_weight = tile * kTileWeights;
  const int all_stages = (p.k + kStageColumns - 1) / kStageColumns;
  const int first = p.shared ? 0 : all_stages * rank / cluster;
  const int count = (p.shared ? all_stages : all_stages * (rank + 1) / cluster) - first;
  const auto weights_at = [&](int slot) { return ring + static_cast<std::uint32_t>(slot) * kTileStage<kValues, kN>; };
  const auto rows_at = [&](int slot) { return weights_at(slot) + kWeightStage<kValues>; };
  const auto copy_weights = [&](int slot, int stage) {
    full[slot].arrive_and_expect(kTileStage<kValues, kN>);  // bytes outside w or x arrive as zeros
    const int column = stage * (stage_row_bytes(kValues) / 2);
    if (p.gate == Gate::kNone) {
      copy_box(weights_at(slot), p.values, full[slot], column, first_weight);
    } else {
      copy_box(weights_at(slot), p.values, full[slot], column, 0, 0, first_weight / 16, 0);
    }
  };
  const auto copy_rows = [&](int slot, int stage) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::uint32_t to = rows_at(slot) + static_cast<std::uint32_t>(half * kN * kHalfColumns * 2);
      const int column = stage * kStageColumns + half * kHalfColumns;
      if (p.shared) {
        const int share = rank * (kN / 2);
        copy_box_to_all(to + static_cast<std::uint32_t>(share * kHalfColumns * 2), p.x, full[slot], 3, column,
                        first_row + share);
      } else {
        copy_box(to, p.x, full[slot], column, first_row);
      }
    }
  };
  const bool is_copying = threadIdx.x == kTileWarpgroups * kWarpgroup;
  const int ahead = min(p.stages, count);
  if (is_copying) {
    prefetch_map(p.values);
    prefetch_map(p.x);
    for (int s = 0; s < p.stages; ++s) {
      full[s].init(1);
      empty[s].init(static_cast<std::uint32_t>(kTileWarps * (p.shared ? 2 : 1)));
    }
    SharedBarrier::make_visible();
    for (int s = 0; s < ahead; ++s) copy_weights(s, first + s);
  }
  __syncwarp();
  let_next_begin();
  if (cluster > 1) {
    sync_cluster();
  } else {
    __syncthreads();
  }
  wait_for_previous();

  const int thread = static_cast<int>(threadIdx.x);
  const int weight = thread / kWarp * 16 + thread % kWarp / 4;  // the thread's first row of w in the tile
  if (threadIdx.x < kTileWarpgroups * kWarpgroup) {
    // The rows of w itself: 8 gates and their ups alternate where there is a gate.
    const bool is_gated = p.gate != Gate::kNone;
    const int rows_of_w = static_cast<int>(p.w.rows);
    const int w_rows[2] = {
        min(is_gated ? first_weight / 2 + weight / 16 * 8 + weight % 8 : first_weight + weight,
            is_gated ? p.n - 1 : rows_of_w - 1),
        min(is_gated ? p.n + first_weight / 2 + weight / 16 * 8 + weight % 8 : first_weight + weight + 8,
            rows_of_w - 1)};
    StageScales<T, kValues, kGroups> next[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) next[half].load(p.w, w_rows[half], first);
    float sum[kN / 2];
    const auto release = [&](int slot) {
      if (thread % kWarp != 0) return;
      if (p.shared) {
        arrive_at_block(empty[slot], 0);
        arrive_at_block(empty[slot], 1);
      } else {
        empty[slot].arrive();
      }
    };
    for (int s = 0, slot = 0, turn = 0; s < count; ++s) {
      full[slot].wait(turn & 1);
      HeldStage held;
      convert_stage<T, kValues, kGroups>(weights_at(slot), weight, next, held);
      if (s + 1 < count) {
#pragma unroll
        for (int half = 0; half < 2; ++half) next[half].load(p.w, w_rows[half], first + s + 1);
      }
      begin_products();
#pragma unroll
      for (int d = 0; d < kStageSteps; ++d) {
        const std::uint64_t b =
            matrix_at(rows_at(slot) + static_cast<std::uint32_t>(d / 4 * kN * kHalfColumns * 2)) + d % 4 * kMatrixStep;
        multiply_held<T, kN>(sum, held[d], b, s + d);
      }
      end_products();
      // The compiler lets no product run while the registers of another are written (ptxas C7513), so only the other
      // warpgroup fills the tensor cores while this one converts.
      wait_for_products<0>();
      release(slot);
      if (++slot == p.stages) slot = 0, ++turn;
    }
    hold(sum);
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      factor[half] = p.w.factor == nullptr ? 1.0F : p.w.factor[w_rows[half]];
      if constexpr (kGroups == 0) {
        factor[half] *= scale_of(p.w, w_rows[half] / p.w.format.group_rows * p.w.num_groups);
      } else {
        factor[half] *= kSumGrow<T, kValues>;
      }
    }
    // The sums overwrite memory that all warps must have read before.
    asm volatile("bar.sync 1, %0;" ::"n"(kTileWarpgroups * kWarpgroup) : "memory");
    store_tile_sums<kN>(sum, ring, weight, factor);
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
  if (cluster > 1) {
    sync_cluster();
  } else {
    __syncthreads();
  }
  if (threadIdx.x < kTileWarpgroups * kWarpgroup) {
    if (p.shared || p.split == 1) {
      store_tile_share<T, kN, 1>(p, ring, first_row, first_weight, 0);
    } else if (p.split == 2) {
      store_tile_share<T, kN, 2>(p, ring, first_row, first_weight, rank);
    } else {
      store_tile_share<T, kN, kMostSplit>(p, ring, first_row, first_weight, rank);
    }
  }
  if (!p.shared && p.split > 1) {
    __syncwarp();
    sync_cluster();  // other blocks may still read this block's sums
  }
#endif
}

}  // namespace tessera::cuda::quantised
