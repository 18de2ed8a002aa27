// Linears of few rows on Hopper, alone and joined with the gate behind them.
//
// A decode of few requests reads every weight once, and a small model's matrix is read in less time than a kernel takes
// to begin. Weights do not depend on the kernels ahead. So a block asks the copy engine for its first weights before it
// waits for those kernels (cuda_launch.cuh): they come in while the kernels ahead still run. What it reads of x after
// that wait it asks for all at once, as far as registers hold it: what follows depends on the last of it.
//
// Two blocks to a multiprocessor keep 200 KiB of loads under way. A block takes tile after tile, of 16 rows of w and
// all of k, in stages of 1024 columns, the last one shorter, that go through a ring in shared memory and do not pause
// between tiles. Each of eight warps multiplies an eighth of a stage by tensor-core instructions; their sums are added
// at the end of a tile, in an order that does not depend on the number of rows. Values are rounded where the operators'
// own kernels round them.
#pragma once

#include <cstdint>

#include "tessera/ops/bulk_copy.cuh"
#include "tessera/ops/cuda_launch.cuh"
#include "tessera/ops/cuda_math.cuh"
#include "tessera/ops/linear_gate.cuh"
#include "tessera/ops/tensor_core.cuh"

namespace tessera::cuda::streamed_linear {

inline constexpr int kMaxRows = 16;      // of x
inline constexpr int kBlockRows = 16;    // of w
inline constexpr int kWarps = 8;         // that multiply; a ninth asks for weights
inline constexpr int kStepColumns = 32;  // of a warp: 16 bytes to a thread
inline constexpr int kRoundColumns = kWarps * kStepColumns;
inline constexpr int kStageRounds = 4;
inline constexpr int kStageColumns = kStageRounds * kRoundColumns;
inline constexpr int kMaxStages = 3;  // with which the blocks of two kernels fit on a multiprocessor
// Rows in shared memory lie 64 bytes further than a multiple of 128, so that the eight threads that read 16 bytes each
// of two rows at a time use all banks.
inline constexpr int kPadding = 64;
inline constexpr int kRowBytes = kStageColumns * 2 + kPadding;  // of a stage
inline constexpr int kStageBytes = kBlockRows * kRowBytes;

// y[m, n], a linear of x; gated: w has n rows of gates, then n rows of ups.
template <class T>
struct Streamed {
  const T* x;         // [m, k]
  const T* w;         // [n or 2n, k]
  const T* bias;      // [n or 2n]; null: none
  const T* residual;  // [m, n]; null: none
  T* y;               // [m, n]
  int m;
  int n;
  int k;
  int stages;  // of weights, in shared memory
  Gate gate;
};

// The warps that multiply, without the ninth.
__device__ inline void sync_multiplying() { asm volatile("bar.sync 1, %0;" ::"n"(kWarps * kWarp) : "memory"); }

// Stores what the sums of a tile give, whose first column of y is `first`: total(row of x, row of the tile), in
// float32. Called by the warps that multiply.
template <class T, bool kGated, class Total>
__device__ inline void store_tile(const Streamed<T>& p, int first, const Total& total) {
  constexpr int kColumns = kGated ? kBlockRows / 2 : kBlockRows;
  for (int i = static_cast<int>(threadIdx.x); i < p.m * kColumns; i += kWarps * kWarp) {
    const int row = i / kColumns;
    const int at = i % kColumns;
    float y = total(row, at);
    if (p.bias != nullptr) y += to_float(p.bias[first + at]);
    if constexpr (kGated) {
      float up = total(row, kColumns + at);
      if (p.bias != nullptr) up += to_float(p.bias[p.n + first + at]);
      y = gated<T>(p.gate, y, up);
    }
    const std::int64_t out = static_cast<std::int64_t>(row) * p.n + first + at;
    if (p.residual != nullptr) y += to_float(p.residual[out]);
    p.y[out] = from_float<T>(y);
  }
}

// kEights: groups of eight rows of x. kHeld: stages of a tile, of which all of x stays in registers; 0: any number of
// stages, whose columns of x are loaded one stage after another. A block takes every gridDim.x-th tile of 16 rows of w.
template <class T, int kEights, bool kGated, int kHeld>
__global__ void __launch_bounds__((kWarps + 1) * kWarp) streamed(const Streamed<T> p) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  constexpr int kRows = kEights * 8;
  constexpr int kPairs = (kEights + 1) / 2;  // an instruction takes two groups of rows
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ SharedBarrier full[kMaxStages], empty[kMaxStages];
  __shared__ float sums[2][kWarps][kRows][kBlockRows + 2];
  constexpr int kColumns = kGated ? kBlockRows / 2 : kBlockRows;  // of y, in a tile
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int tiles = p.n / kColumns;
  const int stages = (p.k + kStageColumns - 1) / kStageColumns;  // of a tile; the last may be short
  const int step = static_cast<int>(gridDim.x);
  if (threadIdx.x == kWarps * kWarp) {
    for (int s = 0; s < p.stages; ++s) {
      full[s].init(1);
      empty[s].init(kWarps);
    }
    SharedBarrier::make_visible();
  }
  let_next_begin();
  __syncthreads();

  // Where the ring stands: its slot, and how often it went round.
  int slot = 0;
  std::uint32_t turn = 0;
  const auto advance = [&] {
    if (++slot == p.stages) {
      slot = 0;
      ++turn;
    }
  };
  if (warp == kWarps) {
    for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += step) {
      const int first = tile * kColumns;
      const int row = kGated && lane >= kColumns ? p.n + first + lane - kColumns : first + lane;
      const T* from = p.w + static_cast<std::int64_t>(row) * p.k;
      for (int i = 0; i < stages; ++i, advance()) {
        if (turn > 0) empty[slot].wait((turn - 1) & 1);
        const int bytes = min(kStageColumns, p.k - i * kStageColumns) * 2;
        if (lane == 0) full[slot].arrive_and_expect(static_cast<std::uint32_t>(kBlockRows * bytes));
        __syncwarp();
        if (lane < kBlockRows)
          bulk_copy(shared + slot * kStageBytes + lane * kRowBytes, from + i * kStageColumns,
                    static_cast<std::uint32_t>(bytes), full[slot]);
      }
    }
    wait_for_previous();
    return;
  }

  wait_for_previous();
  // Threads of one quad take neighbouring 16 bytes of a row. Which of k's columns an instruction's operands name does
  // not matter, as long as both matrices have the same.
  const int row = lane / 4;
  const int column = warp * kStepColumns + lane % 4 * 8;
  const T* mine[kEights];
#pragma unroll
  for (int e = 0; e < kEights; ++e) mine[e] = p.x + static_cast<std::int64_t>(min(e * 8 + row, p.m - 1)) * p.k + column;
  const auto steps_of = [&](int stage) {  // of this warp
    const int left = p.k - stage * kStageColumns - warp * kStepColumns;
    return min(kStageRounds, (left + kRoundColumns - 1) / kRoundColumns);
  };
  using Held = uint4[kStageRounds][kEights];
  const auto load = [&](Held& x, int stage) {
    const int steps = steps_of(stage);
#pragma unroll
    for (int d = 0; d < kStageRounds; ++d)
#pragma unroll
      for (int e = 0; e < kEights; ++e)
        if (d < steps) x[d][e] = *reinterpret_cast<const uint4*>(mine[e] + stage * kStageColumns + d * kRoundColumns);
  };
  float sum[kPairs][2][4];
  const auto multiply = [&](const Held& x, int stage) {
    const int steps = steps_of(stage);
    full[slot].wait(turn & 1);
#pragma unroll
    for (int d = 0; d < kStageRounds; ++d) {
      if (d >= steps) break;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const auto* from =
            shared + slot * kStageBytes + (half * 8 + row) * kRowBytes + (column + d * kRoundColumns) * 2;
        const uint4 w = *reinterpret_cast<const uint4*>(from);
#pragma unroll
        for (int pair = 0; pair < kPairs; ++pair) {
          const uint4 low = x[d][2 * pair];
          const uint4 high = kEights > 1 ? x[d][kEights > 1 ? 2 * pair + 1 : 0] : make_uint4(0, 0, 0, 0);
          multiply_tile<T>(sum[pair][half], {low.x, high.x, low.y, high.y}, w.x, w.y);
          multiply_tile<T>(sum[pair][half], {low.z, high.z, low.w, high.w}, w.z, w.w);
        }
      }
    }
    __syncwarp();
    if (lane == 0) empty[slot].arrive();
    advance();
  };

  Held x[kHeld > 0 ? kHeld : 1];
#pragma unroll
  for (int i = 0; i < kHeld; ++i) load(x[i], i);
  int buffer = 0;
  for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += step) {
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair)
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[pair][half][j] = 0;
    if constexpr (kHeld > 0) {
#pragma unroll
      for (int i = 0; i < kHeld; ++i) multiply(x[i], i);
    } else {
      for (int i = 0; i < stages; ++i) {
        load(x[0], i);
        multiply(x[0], i);
      }
    }
    auto& mine_of_all = sums[buffer][warp];
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int e = 0; e < kEights; ++e)
        *reinterpret_cast<float2*>(&mine_of_all[e * 8 + row][half * 8 + lane % 4 * 2]) =
            make_float2(sum[e / 2][half][e % 2 * 2], sum[e / 2][half][e % 2 * 2 + 1]);
    sync_multiplying();  // before it come all reads of the tile before the last, whose buffer the next one takes
    const auto total = [&](int r, int w_row) {
      float t = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) t += sums[buffer][w][r][w_row];
      return t;
    };
    store_tile<T, kGated>(p, tile * kColumns, total);
    buffer ^= 1;
  }
#endif
}

}  // namespace tessera::cuda::streamed_linear
