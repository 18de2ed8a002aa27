// Computes adapter_shrink for many rows of 16-bit types, on tensor cores.
//
// Reading x limits the speed, so many bytes must be in flight. A block multiplies a chunk of up to kRows rows of x
// by kGroups · kValues rows of A. Stages of kStageColumns columns of both are copied to shared memory asynchronously,
// and kTileStages - 1 stages are in flight. The kParts blocks of a cluster divide the stages among them, and add up
// their sums at the end, always in the same order.
//
// The lower bound of the time is that of reading x: 2 · rows · cols bytes at the bandwidth of the memory, or of the L2
// cache if x is there.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "tessera/ops/adapters/adapter_tiles.cuh"

namespace tessera::cuda::adapters {

inline constexpr int kTileWarps = 8;
inline constexpr int kTileThreads = kTileWarps * kWarp;
inline constexpr int kStageColumns = 128;
inline constexpr int kTileStages = 3;

// A stage in shared memory.
template <class T, int kRows, int kGroups>
struct ShrinkStage {
  static constexpr int kPacks = kStageColumns / kPackSize<T>;  // packs of 16 bytes in a row
  PermutedRows<T, kRows, kPacks> x;
  PermutedRows<T, kGroups * kValues, kPacks> a;
};

// The sums of a block, in the memory of its stages: one set for each of the kShares warps that divide up a stage's
// columns.
template <int kRows, int kGroups>
struct ShrinkSums {
  static constexpr int kShares = kTileWarps / (kRows / 16);
  float of[kShares][kRows][kGroups * kValues + 1];
};

template <class T, int kRows, int kGroups>
inline constexpr std::size_t kShrinkBytes = std::max(kTileStages * sizeof(ShrinkStage<T, kRows, kGroups>),
                                                     sizeof(ShrinkSums<kRows, kGroups>));

// Loads a value from block `block` of the cluster, at the offset that `own` has in this block's shared memory.
__device__ inline float load_from_block(const float* own, unsigned block) {
  float value;
  asm volatile(
      "{\n"
      ".reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %1, %2;\n"
      "ld.shared::cluster.f32 %0, [there];\n"
      "}\n"
      : "=f"(value)
      : "r"(shared_address(own)), "r"(block)
      : "memory");
  return value;
}

// The copies that a thread makes of each stage. The thread's packs of a stage are all in the same column.
template <class T, int kRows, int kGroups>
class ShrinkCopies {
 public:
  using Stage = ShrinkStage<T, kRows, kGroups>;

  // May run before the preceding kernels have ended.
  __device__ ShrinkCopies(const AdapterShrinkArgs& in, const Chunk& chunk, std::int32_t first_value)
      : cols_(in.cols), column_(static_cast<int>(threadIdx.x) % Stage::kPacks) {
    const int first = static_cast<int>(threadIdx.x) / Stage::kPacks;
    const std::int32_t values = in.modules * in.rank;
#pragma unroll
    for (int i = 0; i < kXs; ++i) {
      const int row = first + i * kRowsAtOnce;
      is_x_[i] = row < chunk.count;
      x_[i] = static_cast<const T*>(in.x) + (is_x_[i] ? in.table.order[chunk.begin + row] * in.cols : 0);
    }
#pragma unroll
    for (int i = 0; i < kAs; ++i) {
      const std::int32_t n = first_value + first + i * kRowsAtOnce;
      is_a_[i] = chunk.slot >= 0 && n < values && n % in.rank < in.ranks[chunk.slot * in.modules + n / in.rank];
      a_[i] = static_cast<const T*>(in.a) + (is_a_[i] ? (std::int64_t{chunk.slot} * values + n) * in.cols : 0);
    }
  }
  __device__ void copy_x(Stage& to, std::int64_t first_column) const { copy(to.x, x_, is_x_, first_column); }
  __device__ void copy_a(Stage& to, std::int64_t first_column) const { copy(to.a, a_, is_a_, first_column); }

 private:
  static constexpr int kRowsAtOnce = kTileThreads / Stage::kPacks;
  static constexpr int kXs = kRows / kRowsAtOnce;
  static constexpr int kAs = kGroups * kValues / kRowsAtOnce;
  static_assert(kRows % kRowsAtOnce == 0 && kValues % kRowsAtOnce == 0);

  template <class Rows, int kCount>
  __device__ void copy(Rows& to, const T* const (&from)[kCount], const bool (&is_there)[kCount],
                       std::int64_t first_column) const {
    const std::int64_t column = first_column + column_ * kPackSize<T>;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const bool real = is_there[i] && column < cols_;
      copy_async(to.pack(static_cast<int>(threadIdx.x) / Stage::kPacks + i * kRowsAtOnce, column_),
                 from[i] + (real ? column : 0), real);
    }
  }

  std::int64_t cols_;
  int column_;  // in packs
  const T* x_[kXs];
  const T* a_[kAs];
  bool is_x_[kXs];
  bool is_a_[kAs];
};

// Multiplies a warp's 16 rows of x by all rows of A, in the columns of a stage that the warp takes.
template <class T, int kRows, int kGroups>
__device__ inline void multiply_stage(float (&sums)[kGroups][2][4], ShrinkStage<T, kRows, kGroups>& stage) {
  constexpr int kRowTiles = kRows / 16;
  constexpr int kShares = kTileWarps / kRowTiles;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int step = 0; step < kStageColumns / 16 / kShares; ++step) {
    const int pack = (step * kShares + warp / kRowTiles) * 2;
    std::uint32_t x[4];
    load_matrices<false>(x, stage.x.pack(warp % kRowTiles * 16 + lane % 16, pack + lane / 16));
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      std::uint32_t a[4];
      load_matrices<false>(a, stage.a.pack(g * kValues + lane / 16 * 8 + lane % 8, pack + lane / 8 % 2));
      multiply_tile<T>(sums[g][0], x, a[0], a[1]);
      multiply_tile<T>(sums[g][1], x, a[2], a[3]);
    }
  }
}

// gridDim.x counts the kParts blocks of a cluster, gridDim.y counts groups of kGroups · kValues rows of A, and
// gridDim.z counts chunks.
template <class T, int kRows, int kGroups, int kParts>
__global__ void __launch_bounds__(kTileThreads, 2) shrink_tiles(const AdapterShrinkArgs in) {
  using Stage = ShrinkStage<T, kRows, kGroups>;
  using BlockSums = ShrinkSums<kRows, kGroups>;
  extern __shared__ __align__(128) unsigned char shared[];
  auto* const stages = reinterpret_cast<Stage*>(shared);
  let_next_begin();
  const int part = static_cast<int>(blockIdx.x);
  const Chunk chunk(in.table, blockIdx.z);
  const std::int32_t first_value = static_cast<std::int32_t>(blockIdx.y) * kGroups * kValues;
  const ShrinkCopies<T, kRows, kGroups> copies(in, chunk, first_value);
  const auto column_of = [&](int stage) { return (std::int64_t{stage} * kParts + part) * kStageColumns; };
  if (chunk.count > 0) {
#pragma unroll
    for (int s = 0; s < kTileStages - 1; ++s) copies.copy_a(stages[s], column_of(s));
  }
  wait_for_previous();
  if (chunk.count == 0) return;

#pragma unroll
  for (int s = 0; s < kTileStages - 1; ++s) {
    copies.copy_x(stages[s], column_of(s));
    commit_copies();
  }
  float sums[kGroups][2][4] = {};
  int slot = 0;
  for (int s = 0; column_of(s) < in.cols; ++s) {
    wait_for_copies<kTileStages - 2>();
    __syncthreads();  // the stage has arrived, and all warps have used the one before it
    const int next = slot == 0 ? kTileStages - 1 : slot - 1;
    copies.copy_a(stages[next], column_of(s + kTileStages - 1));
    copies.copy_x(stages[next], column_of(s + kTileStages - 1));
    commit_copies();
    multiply_stage<T, kRows, kGroups>(sums, stages[slot]);
    slot = slot == kTileStages - 1 ? 0 : slot + 1;
  }
  wait_for_copies<0>();
  __syncthreads();  // the sums take the place of the stages

  auto& block_sums = *reinterpret_cast<BlockSums*>(shared);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int g = 0; g < kGroups; ++g)
#pragma unroll
    for (int i = 0; i < 8; ++i)
      block_sums.of[warp / (kRows / 16)][warp % (kRows / 16) * 16 + lane / 4 + i / 2 % 2 * 8]
                   [g * kValues + i / 4 * 8 + lane % 4 * 2 + i % 2] = sums[g][i / 4][i % 4];
  sync_cluster();
  constexpr int kResults = kRows * kGroups * kValues;
  for (int result = part * kTileThreads + static_cast<int>(threadIdx.x); result < kResults;
       result += kParts * kTileThreads) {
    const int row = result / (kGroups * kValues);
    const int value = result % (kGroups * kValues);
    float sum = 0;
#pragma unroll
    for (int p = 0; p < kParts; ++p)
#pragma unroll
      for (int share = 0; share < BlockSums::kShares; ++share)
        sum += load_from_block(&block_sums.of[share][row][value], static_cast<unsigned>(p));
    store_sum<T>(in, chunk, first_value + value, row, sum);
  }
  leave_cluster();  // other blocks read this block's sums
}

}  // namespace tessera::cuda::adapters
