// The code that quantised_linear's kernels of tiles on Hopper share (quantised_tiles.cuh,
// quantised_groups.cuh, quantised_fp8.cuh, rounded_wide.cuh, quantised_fixed.cuh): the arrangement of blocks, the ring
// of stages in shared memory, and the store of a tile's results.
//
// A block computes 128 rows of w by kN rows of x. One warp copies stages of 64 to 256 columns of k to the ring. It
// starts the first copies of weights before the preceding kernels have ended. Each of two warpgroups multiplies 64 rows
// of w by all kN rows of x, or 64 rows of x by all 128 rows of w. A template parameter, Product, says how. If x has few
// rows and is multiplied in rounded form, the block has further warps, which round x and write it to the ring
// (rounding_warps.cuh). The blocks of a cluster do one of two things:
//   - with few tiles they split k. At the end each block leaves its sums in its own shared memory, and adds the sums of
//     all blocks for its share of the rows of x (linear_split.cuh). Blocks that round x instead send their sums
//     (sent_sums.cuh). If the tiles slightly outnumber the blocks that run at once, only the first clusters split k,
//     and each block after them computes a whole tile;
//   - with many tiles two blocks compute neighbouring tiles of w for the same rows of x, and share the copies of x.
// If there are many wide tiles, persistent blocks compute them instead, one tile after another (persistent_tiles.cuh).
#pragma once

#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/linear/linear_split.cuh"
#include "tessera/ops/quantised/rounding_warps.cuh"
#include "tessera/ops/quantised/sent_sums.cuh"
#include "tessera/ops/quantised/tile_ring.cuh"

namespace tessera::cuda::quantised {

// Stores the sums of a warpgroup to shared memory as [kN, kTileSumRow]. Each sum is multiplied by the factor of its row
// of w. A thread has two rows of w, and sum[4 j + 2 h + i] belongs to its row h, where h is 0 or 1. Let q be the
// thread's number in its quad. The row of x is 8 j + 2 q + i if kNextRow is 1, and 8 j + q + 4 i if kNextRow is 4.
template <int kN, int kNextRow>
__device__ inline void store_tile_sums(const float (&sum)[kN / 2], std::uint32_t sums, int weight,
                                       const float (&factor)[2]) {
  static_assert(kNextRow == 1 || kNextRow == 4);
  const std::uint32_t first_row = threadIdx.x % 4 * (kNextRow == 1 ? 2 : 1);
  const std::uint32_t to = sums + first_row * kTileSumRow * 4 + static_cast<std::uint32_t>(weight) * 4;
#pragma unroll
  for (int j = 0; j < kN / 8; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      asm volatile("st.shared.f32 [%0], %1;" ::"r"(
                       to + static_cast<std::uint32_t>(((j * 8 + i % 2 * kNextRow) * kTileSumRow + i / 2 * 8) * 4)),
                   "f"(sum[4 * j + i] * factor[i / 2])
                   : "memory");
}

// Computes and stores y for the rows of x that are the block's share of the tile. If kSplit is true, the function adds
// up the sums of all blocks of the cluster. If not, the block's share is the whole tile, and the block has the complete
// sums. A thread stores eight columns of a row at a time.
template <class T, int kN, bool kSplit>
__device__ inline void store_tile_share(const TiledQuantised<T>& p, std::uint32_t sums, const TilePlace& place) {
  const int share = kSplit ? (kN + p.split - 1) / p.split : kN;
  const int first = kSplit ? place.rank * share : 0;
  const int weights = p.gate != Gate::kNone ? 16 : 8;  // number of rows of w for which a thread has sums
  const int packs = kTileWeights / weights;
  for (int i = static_cast<int>(threadIdx.x); i < share * packs; i += kTileWarps * kWarp) {
    const int at = first + i / packs;
    const int row = place.first_row + at;
    const int column = place.first_weight * 8 / weights + i % packs * 8;
    if (at >= kN || row >= p.m || column >= p.n) continue;
    const std::uint32_t from = sums + static_cast<std::uint32_t>((at * kTileSumRow + i % packs * weights) * 4);
    const std::int64_t out = static_cast<std::int64_t>(row) * p.n + column;
    const auto add = [&](float(&total)[8], int weight) {
      const std::uint32_t at_weight = from + static_cast<std::uint32_t>(weight * 4);
      if constexpr (kSplit) {
        split_linear::add_blocks<kMostSplit>(total, at_weight, p.split);
      } else {
        split_linear::add_blocks<1>(total, at_weight);
      }
    };
    split_linear::store_columns<T>(p, column, out, split_linear::residual_at<T>(p, out), add);
  }
}

// Sets `w_rows` to a thread's two rows of w. `weight` is the first of them, counted within the tile. With a gate, 8
// gate rows alternate with their 8 up rows. Rows past the last row of w are replaced by the last row, and the sums of
// the replaced rows are not stored.
template <class T>
__device__ inline void rows_of_thread(const TiledQuantised<T>& p, const TilePlace& at, int weight, int (&w_rows)[2]) {
  const auto last = static_cast<int>(p.w.rows) - 1;
  const int gate = at.first_weight / 2 + weight / 16 * 8 + weight % 8;
  const int plain = at.first_weight + weight;
  const bool is_gated = p.gate != Gate::kNone;
  w_rows[0] = min(last, is_gated ? gate : plain);
  w_rows[1] = min(last, is_gated ? p.n + gate : plain + 8);
}

// Does what store_tile_sums() does, for a Product whose kRowsFirst is true. A thread has two rows of x, eight rows
// apart, and two neighbouring rows in each group of eight rows of w. sum[4 j + 2 h + i] belongs to the thread's row h
// of x, and to its row i in group j of w. If w has one scale for each row, the function multiplies the sums by these
// scales.
template <class T>
__device__ inline void store_row_sums(const TiledQuantised<T>& p, const TilePlace& at,
                                      const float (&sum)[kTileWeights / 2], std::uint32_t sums) {
  const auto quad = static_cast<int>(threadIdx.x % 4) * 2;
  const auto row = static_cast<int>(threadIdx.x / kWarp * 16 + threadIdx.x % kWarp / 4);
  const bool by_row = p.w.num_groups == 1;
  const auto* const scales = reinterpret_cast<const float*>(p.w.scales);
  const auto group_rows = static_cast<int>(p.w.format.group_rows);
  const auto factor_of = [&](int w_row) { return by_row ? scales[w_row / group_rows] : 1.0F; };
#pragma unroll
  for (int j = 0; j < kTileWeights / 8; j += 2) {
    int w_rows[2][2];
    rows_of_thread(p, at, j * 8 + quad, w_rows[0]);
    rows_of_thread(p, at, j * 8 + quad + 1, w_rows[1]);
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const float factor[2] = {factor_of(w_rows[0][e]), factor_of(w_rows[1][e])};
#pragma unroll
      for (int half = 0; half < 2; ++half)
        asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(
                         sums + static_cast<std::uint32_t>(((row + half * 8) * kTileSumRow + (j + e) * 8 + quad) * 4)),
                     "f"(sum[4 * (j + e) + 2 * half] * factor[0]), "f"(sum[4 * (j + e) + 2 * half + 1] * factor[1])
                     : "memory");
    }
  }
}

// Waits for all threads of the block, or of its cluster.
__device__ inline void sync_blocks(bool of_cluster) {
  __syncwarp();
  if (of_cluster) {
    sync_cluster();
  } else {
    __syncthreads();
  }
}

// Waits for the warpgroups that multiply.
__device__ inline void sync_multiplying() {
  asm volatile("bar.sync 1, %0;" ::"n"(kTileWarpgroups * kWarpgroup) : "memory");
}

// Computes a block's part of y with a Product, which is described below. The grid consists of clusters of p.split
// blocks, or of two blocks that share x. The blocks of a cluster have consecutive numbers. Consecutive tiles have the
// same rows of w and the next rows of x, until x has no more rows. Preconditions: n is a multiple of 8, and k is a
// multiple of 16.
//
// A Product has
//   Ring, Element              types: the ring, and the type of x and y
//   kColumns, kWeightRowBytes  the columns of a stage, and the bytes of a row of w in a stage
//   first_weight()             the first of a thread's two rows of w, counted within the tile; the second is eight rows
//                              further on. If kRowsFirst, a thread has sums of all rows of w, and the two rows only say
//                              which scales it reads
//   kNextRow                   see store_tile_sums()
//   kRowsFirst                 whether x is the A operand of the products. If it is, a thread has the sums that
//                              store_row_sums() takes, and otherwise the sums that store_tile_sums() takes
//   kHoldsParts                whether the warpgroups take over registers because a thread holds the sums of a stage
//                              beside those of the tile. If they do, the block has a multiprocessor to itself
//   kRounds                    whether the block has warps that round x
//   kLimitsBoxes               whether the block limits the number of boxes of weights in flight. If it does, weights
//                              and rows of x have separate barriers
// and a function multiply(p, at, ring, weight, w_rows, place, sum, factor), which each thread of the two warpgroups
// calls. It computes the thread's sums over the block's stages, and the factors of the thread's two rows of w, `w_rows`
// (the factors are 1 if kRowsFirst). `weight` is the first of these rows, counted within the tile. `place` is the place
// of the block's first stage in the ring, and is set to the place after the block's last stage.
template <class Product>
__global__ void __launch_bounds__(kTileThreads<Product>, kTileBlocks<Product>)
    quantised_block(const __grid_constant__ TiledQuantised<typename Product::Element> p) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Ring = typename Product::Ring;
  constexpr int kN = Ring::kN;
  extern __shared__ unsigned char unaligned[];
  constexpr bool kLimits = Product::kLimitsBoxes;
  __shared__ SharedBarrier weights_full[kMostTileStages], empty[kMostTileStages];
  __shared__ SharedBarrier separate_rows_full[kLimits ? kMostTileStages : 1];
  __shared__ SharedBarrier arrived;  // counts the sums that other blocks send
  __shared__ alignas(16) float received[Product::kRounds ? kMostSentSums : 4];
  const Ring ring{(shared_address(unaligned) + 1023) / 1024 * 1024, p.stages, weights_full,
                  kLimits ? separate_rows_full : weights_full, empty};
  const TilePlace at = TilePlace::of<kN, Product::kColumns>(p);
  const TileCopies<typename Product::Element, Product> copies{p, at, ring};
  const bool is_copying = threadIdx.x == kTileWarpgroups * kWarpgroup;
  const int ahead = min(p.stages, at.count);
  const int early =
      kLimits ? min(ahead, kTileBoxesInFlight<Product>) : ahead;  // number of boxes that are requested at once
  BoxesInFlight in_flight(weights_full, p.stages, kTileBoxesInFlight<Product>);
  const auto copy_weights = [&](int slot, int s) {
    if constexpr (kLimits) in_flight.wait_for_one();
    copies.weights(slot, at.first + s);
  };
  if (is_copying) {
    prefetch_map(p.values);
    if constexpr (!Product::kRounds) prefetch_map(p.x);
    for (int s = 0; s < p.stages; ++s) {
      weights_full[s].init(kLimits ? 1 : 2);
      if constexpr (kLimits) separate_rows_full[s].init(1);
      empty[s].init(static_cast<std::uint32_t>(kTileWarps * (p.shared ? 2 : 1)));
    }
    if constexpr (Product::kRounds) arrived.init(1);
    SharedBarrier::make_visible();
    if constexpr (Product::kRounds) {
      if (at.splits) arrived.arrive_and_expect(SentUnits::of(p).bytes(at.rank));
    }
    for (int s = 0; s < early; ++s) copy_weights(s, s);
  }
  let_next_begin();
  if constexpr (Product::kRounds) arrive_at_cluster_early();
  sync_blocks(p.shared);  // blocks that share x need each other's barriers from here on

  if (threadIdx.x < kTileWarpgroups * kWarpgroup) {
    if constexpr (kMovesRegisters<Product>) keep_registers<232, true>();
    const int weight = Product::first_weight();
    int w_rows[2];
    rows_of_thread(p, at, weight, w_rows);
    float sum[kN / 2];
    float factor[2];
    RingPlace place;
    Product::multiply(p, at, ring, weight, w_rows, place, sum, factor);
    wait_for_previous();  // must precede the reads of the residual and the writes of y
    // The sums overwrite stages of the ring, so all warps must have read these stages first.
    sync_multiplying();
    if constexpr (Product::kRowsFirst) {
      store_row_sums(p, at, sum, ring.base);
    } else {
      store_tile_sums<kN, Product::kNextRow>(sum, ring.base, weight, factor);
    }
    if constexpr (Product::kRounds) {
      sync_multiplying();
      wait_for_cluster();
    } else {
      sync_blocks(p.shared || at.splits);
    }
    if (!at.splits) {
      store_tile_share<typename Product::Element, kN, false>(p, ring.base, at);
    } else if constexpr (Product::kRounds) {
      store_sent_sums(p, at, ring.base, received, arrived);
    } else {
      store_tile_share<typename Product::Element, kN, true>(p, ring.base, at);
    }
  } else {
    if constexpr (kMovesRegisters<Product>) keep_registers<40, false>();
    if (is_copying) {
      for (int s = early; s < ahead; ++s) copy_weights(s, s);
    }
    __syncwarp();
    wait_for_previous();
    if (is_copying) {
      const auto copy_rows = [&](int slot, int s) {
        if constexpr (!Product::kRounds) copies.rows(slot, at.first + s);
      };
      let_copies_see_stores();
      for (int s = 0; s < ahead; ++s) copy_rows(s, s);
      for (int s = ahead, slot = 0, turn = 0; s < at.count; ++s) {
        empty[slot].wait(turn & 1);
        copy_weights(slot, s);
        copy_rows(slot, s);
        if (++slot == p.stages) slot = 0, ++turn;
      }
    }
    if constexpr (Product::kRounds) {
      const int warp = static_cast<int>(threadIdx.x) / kWarp - kTileWarps - 1;
      if (warp >= 0) round_stages(p, at, ring, warp);
      wait_for_cluster();
    } else {
      sync_blocks(p.shared || at.splits);
    }
  }
  if (at.splits && !Product::kRounds) leave_cluster();  // other blocks may still read this block's sums
#endif
}

}  // namespace tessera::cuda::quantised
