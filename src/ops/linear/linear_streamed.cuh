// Computes a linear of few rows on Hopper. The kernel can also compute the gate after the linear (silu_mul or
// gelu_mul), and the change that adapters make to the linear's result.
//
// A decode of few requests reads every weight once, and reading a small model's matrix takes less time than starting a
// kernel. Weights do not depend on the preceding kernels. So a block asks the copy engine (TMA) for its first weights
// before it waits for those kernels (cuda_launch.cuh), and the weights arrive while they still run. After the wait the
// block loads all of x at once, or as much of x as registers hold, because every tile needs all columns of x.
//
// With up to eight rows x takes few registers, and two blocks on a multiprocessor keep 200 KiB of loads in flight. With
// more rows a multiprocessor has one block at a time. A block processes tiles of 16 rows of w, with all columns of
// these rows. A tile is loaded in stages of at most 1024 columns, of sizes as equal as possible. The stages go through
// a ring in shared memory, without a pause between tiles. Each of eight warps uses tensor-core instructions to multiply
// an eighth of a stage by x. At the end of a tile the warps' sums are added, in an order that depends neither on the
// number of rows nor on the tile. Values are rounded where the operators' own kernels round them.
#pragma once

#include <cstdint>

#include "tessera/ops/adapters/adapter_change.cuh"
#include "tessera/ops/cuda/bulk_copy.cuh"
#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/cuda/cuda_math.cuh"
#include "tessera/ops/cuda/tensor_core.cuh"
#include "tessera/ops/linear/linear_gate.cuh"

namespace tessera::cuda::streamed_linear {

inline constexpr int kMaxRows = 16;      // greatest number of rows of x
inline constexpr int kTileRows = 16;     // rows of w in a tile
inline constexpr int kWarps = 8;         // warps that multiply; a ninth warp loads weights
inline constexpr int kStepColumns = 32;  // columns of a warp in a step: 4 threads (a quad) read 16 bytes each
inline constexpr int kRoundColumns = kWarps * kStepColumns;  // columns of a round, in which each warp makes one step
inline constexpr int kMostRounds = 4;                        // greatest number of rounds in a stage
inline constexpr int kFewRounds = 3;                         // greatest number of rounds in a short stage
inline constexpr int kMostColumns = kMostRounds * kRoundColumns;  // greatest number of columns in a stage
inline constexpr int kMostSlots = 8;                              // greatest number of slots in the ring
// A row in shared memory is padded to 64 bytes past a multiple of 128. So if four threads read 16 bytes each from one
// row and four others from the next row, there are no bank conflicts.
inline constexpr int kBanks = 128;  // the width of all banks together, in bytes
inline constexpr int kPadding = kBanks / 2;
// The maximum size of a ring in bytes. With this size, two blocks fit on a multiprocessor if x has up to eight rows.
inline constexpr int kMostBytes = 3 * kTileRows * (kMostColumns * 2 + kPadding);

// The kernel's arguments. With a gate, w has n gate rows, then n up rows.
template <class T>
struct Streamed {
  const T* x;         // [m, k]
  const T* w;         // [n, k], or [2n, k] with a gate
  const T* bias;      // [n], or [2n] with a gate; null: no bias
  const T* residual;  // [m, n]; null: no residual
  T* y;               // [m, n]
  int m;
  int n;
  int k;
  int stage_columns;  // a multiple of kStepColumns; the last stage of a tile may have fewer
  int row_bytes;      // distance between rows of a stage in shared memory
  int slots;          // slots in the ring
  Gate gate;
};

// Synchronises the warps that multiply, without the ninth warp, which loads weights.
__device__ inline void sync_multiplying() { asm volatile("bar.sync 1, %0;" ::"n"(kWarps * kWarp) : "memory"); }

// Stores the results of a tile to y, from column `first` on. total(row of x, row of the tile) gives a sum in float32.
// `changes` has the values by which adapters change the linear's result. With a gate, they are added to gate and up
// before the activation. Without a gate, they are added to the sum after bias and residual. The warps that multiply
// call this function. Each thread stores at most one value.
template <class T, bool kGated, class Change, class Results, class Total>
__device__ inline void store_tile(const Streamed<T>& p, const Results& changes, int first, const Total& total) {
  constexpr int kColumns = kGated ? kTileRows / 2 : kTileRows;
  static_assert(kMaxRows * kTileRows <= kWarps * kWarp);
  const int row = static_cast<int>(threadIdx.x) / kColumns;
  const int at = static_cast<int>(threadIdx.x) % kColumns;
  if (row < p.m) {
    float y = total(row, at);
    if (p.bias != nullptr) y += to_float(p.bias[first + at]);
    if constexpr (kGated) {
      float up = total(row, kColumns + at);
      if (p.bias != nullptr) up += to_float(p.bias[p.n + first + at]);
      y = gated<T>(p.gate, Change::changed(y, changes.at(row, at)),
                   Change::changed(up, changes.at(row, kColumns + at)));
    }
    const std::int64_t out = static_cast<std::int64_t>(row) * p.n + first + at;
    if (p.residual != nullptr) y += to_float(p.residual[out]);
    if constexpr (!kGated) y = Change::changed(y, changes.at(row, at));
    p.y[out] = from_float<T>(y);
  }
}

// A warp's sums of a tile. A tensor-core instruction multiplies an operand of sixteen rows by an operand of eight rows.
// With up to eight rows of x, w is the operand of sixteen rows. This halves the number of instructions.
template <int kEights>
struct WarpTile {
  static constexpr bool kWeightsFirst = kEights == 1;
  static constexpr int kRows = kEights * 8;
  float sums[kWeightsFirst ? kTileRows : kRows][(kWeightsFirst ? kRows : kTileRows) + 2];

  __device__ float at(int row, int w_row) const { return kWeightsFirst ? sums[w_row][row] : sums[row][w_row]; }
};

// Computes y, tile by tile. kEights is the number of groups of eight rows of x, 1 or 2. kHeld is the number of stages
// whose columns of x are in registers or being loaded. If a tile has at most kHeld stages, x stays in registers.
// kRounds is the greatest number of rounds, of kRoundColumns columns each, in a stage. kAtOnce means that a tile has
// exactly kHeld stages and a warp waits for all of them before it multiplies. A block processes every gridDim.x-th
// tile.
template <class T, int kEights, bool kGated, int kHeld, int kRounds, bool kAtOnce, class Change>
__global__ void __launch_bounds__((kWarps + 1) * kWarp, kAtOnce || kHeld == 1 ? 2 : 1)
    streamed(const Streamed<T> p, const Change change) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  using Tile = WarpTile<kEights>;
  constexpr int kGroup = kAtOnce ? kHeld : 1;
  constexpr int kHalves = kTileRows / 8;  // groups of eight rows of w
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ SharedBarrier full[kMostSlots], empty[kMostSlots];
  using Changes = typename Change::template OfTiles<kEights, kGated>;
  static_assert(kWarps == 8, "each of the warps computes the change of one row of eight");
  __shared__ Tile sums[2][kWarps];
  __shared__ typename Changes::Results of_adapters[2];
  constexpr int kColumns = kGated ? kTileRows / 2 : kTileRows;  // columns of y in a tile
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int tiles = p.n / kColumns;
  const int stages = (p.k + p.stage_columns - 1) / p.stage_columns;  // stages in a tile
  const int slot_bytes = kTileRows * p.row_bytes;
  const auto columns_of = [&](int stage) { return min(p.stage_columns, p.k - stage * p.stage_columns); };
  const int step = static_cast<int>(gridDim.x);
  if (threadIdx.x == kWarps * kWarp) {
    for (int s = 0; s < p.slots; ++s) {
      full[s].init(1);
      empty[s].init(kWarps);
    }
    SharedBarrier::make_visible();
  }
  let_next_begin();
  __syncthreads();

  // The current position in the ring: the slot, and the number of completed rounds.
  int slot = 0;
  std::uint32_t turn = 0;
  const auto advance = [&] {
    if (++slot == p.slots) {
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
        const int bytes = columns_of(i) * 2;
        if (lane == 0) full[slot].arrive_and_expect(static_cast<std::uint32_t>(kTileRows * bytes));
        __syncwarp();
        if (lane < kTileRows)
          bulk_copy(shared + slot * slot_bytes + lane * p.row_bytes, from + i * p.stage_columns,
                    static_cast<std::uint32_t>(bytes), full[slot]);
      }
    }
    wait_for_previous();
    return;
  }

  Changes changes(change, p.m);
  const auto columns_of_y = [&](int tile) {
    return TileColumns{.first = tile * kColumns, .second = tile * kColumns + (kGated ? p.n : 8)};
  };
  changes.load_b(columns_of_y(static_cast<int>(blockIdx.x)));
  wait_for_previous();
  // The four threads of a quad read four neighbouring groups of 16 bytes in a row. An instruction's operands may hold
  // the columns of k in any order, as long as both matrices use the same order.
  const int row = lane / 4;
  const int column = warp * kStepColumns + lane % 4 * 8;
  const T* mine[kEights];
#pragma unroll
  for (int e = 0; e < kEights; ++e) mine[e] = p.x + static_cast<std::int64_t>(min(e * 8 + row, p.m - 1)) * p.k + column;
  const auto steps_of = [&](int stage) {  // number of this warp's steps in the stage
    return (columns_of(stage) - warp * kStepColumns + kRoundColumns - 1) / kRoundColumns;
  };
  using Held = uint4[kRounds][kEights];
  const auto load = [&](Held& x, int stage) {
    const int steps = steps_of(stage);
#pragma unroll
    for (int d = 0; d < kRounds; ++d)
#pragma unroll
      for (int e = 0; e < kEights; ++e)
        if (d < steps) x[d][e] = *reinterpret_cast<const uint4*>(mine[e] + stage * p.stage_columns + d * kRoundColumns);
  };
  float sum[kEights == 1 ? 1 : kHalves][2][4];  // two independent chains of sums, so that an instruction need not wait
                                                // for the previous one
  const auto add_products = [&](const uint4(&x)[kEights], const uint4(&w)[kHalves]) {
    if constexpr (kEights == 1) {
      multiply_tile<T>(sum[0][0], {w[0].x, w[1].x, w[0].y, w[1].y}, x[0].x, x[0].y);
      multiply_tile<T>(sum[0][1], {w[0].z, w[1].z, w[0].w, w[1].w}, x[0].z, x[0].w);
    } else {
#pragma unroll
      for (int half = 0; half < kHalves; ++half) {
        multiply_tile<T>(sum[half][0], {x[0].x, x[1].x, x[0].y, x[1].y}, w[half].x, w[half].y);
        multiply_tile<T>(sum[half][1], {x[0].z, x[1].z, x[0].w, x[1].w}, w[half].z, w[half].w);
      }
    }
  };
  // Waits for the next kGroup stages, of which `stage` is the first, multiplies them by x, and frees their slots.
  const auto multiply = [&](const Held* x, int stage) {
    int slots[kGroup];
#pragma unroll
    for (int& s : slots) {
      s = slot;
      full[slot].wait(turn & 1);
      advance();
    }
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      const unsigned char* const from = shared + slots[i] * slot_bytes + row * p.row_bytes + column * 2;
      const auto round = [&](int d) {
        uint4 w[kHalves];
#pragma unroll
        for (int half = 0; half < kHalves; ++half)
          w[half] = *reinterpret_cast<const uint4*>(from + half * 8 * p.row_bytes + d * kRoundColumns * 2);
        add_products(x[i][d], w);
      };
      // The two usual numbers of rounds, kRounds and kRounds - 1, run without a branch between the loads.
      const int steps = steps_of(stage + i);
      if (steps == kRounds) {
#pragma unroll
        for (int d = 0; d < kRounds; ++d) round(d);
      } else if (steps == kRounds - 1) {
#pragma unroll
        for (int d = 0; d < kRounds - 1; ++d) round(d);
      } else {
#pragma unroll
        for (int d = 0; d < kRounds - 2; ++d)
          if (d < steps) round(d);
      }
    }
    __syncwarp();
#pragma unroll
    for (const int s : slots)
      if (lane == 0) empty[s].arrive();
  };

  const bool stay = kAtOnce || stages <= kHeld;
  Held x[kHeld];
#pragma unroll
  for (int i = 0; i < kHeld; ++i) load(x[i], i);
  int buffer = 0;
  for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += step) {
    changes.load_t(columns_of_y(tile));
#pragma unroll
    for (auto& chains : sum)
#pragma unroll
      for (auto& chain : chains)
#pragma unroll
        for (float& y : chain) y = 0;
    for (int first = 0; first < stages; first += kHeld) {
#pragma unroll
      for (int i = 0; i < kHeld; i += kGroup) {
        if (i > 0 && first + i >= stages) break;
        multiply(x + i, first + i);
        if (stay) continue;
        if (first + i + kHeld < stages) {
          load(x[i], first + i + kHeld);
        } else if (tile + step < tiles) {
          load(x[i], i);
        }
      }
    }
    changes.store(columns_of_y(tile), of_adapters[buffer]);
    if (tile + step < tiles) changes.load_b(columns_of_y(tile + step));
    auto& mine_of_all = sums[buffer][warp].sums;
    const int pair_of_lane = lane % 4 * 2;
    const auto both = [](const float(&chains)[2][4], int at) {
      return make_float2(chains[0][at] + chains[1][at], chains[0][at + 1] + chains[1][at + 1]);
    };
#pragma unroll
    for (int half = 0; half < kHalves; ++half)
#pragma unroll
      for (int e = 0; e < kEights; ++e) {
        if constexpr (kEights == 1) {
          *reinterpret_cast<float2*>(&mine_of_all[half * 8 + row][pair_of_lane]) = both(sum[0], half * 2);
        } else {
          *reinterpret_cast<float2*>(&mine_of_all[e * 8 + row][half * 8 + pair_of_lane]) = both(sum[half], e * 2);
        }
      }
    // There are two buffers of sums. After this barrier no thread reads the previous tile's sums any more, so the next
    // tile may overwrite their buffer.
    sync_multiplying();
    const auto total = [&](int r, int w_row) {
      float t = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) t += sums[buffer][w].at(r, w_row);
      return t;
    };
    store_tile<T, kGated, Change>(p, of_adapters[buffer], tile * kColumns, total);
    buffer ^= 1;
  }
#endif
}

}  // namespace tessera::cuda::streamed_linear
