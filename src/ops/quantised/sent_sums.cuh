// The exchange of sums between the blocks of a cluster that split k, for products of up to eight rows of x
// (quantised_block.cuh).
//
// The results of a tile are divided among the blocks in units. A unit is 8 columns of y in one row. Each block sends
// its sums of a unit to the shared memory of the block that stores the unit, where a barrier counts the bytes. A
// barrier of the whole cluster, followed by reads of other blocks' memory, would take longer. A block may end as soon
// as it has the sums that it stores, because other blocks send nothing to it after that.
#pragma once

#include "tessera/ops/cuda/box_copy.cuh"
#include "tessera/ops/cuda/cuda_math.cuh"
#include "tessera/ops/linear/linear_split.cuh"
#include "tessera/ops/quantised/tile_ring.cuh"

namespace tessera::cuda::quantised {

// The maximum number of floats in the memory where a block receives sums. The block receives at most as many sums as
// the tile has. If the units do not divide evenly among the blocks, the memory also holds up to kMostSplit - 1 unused
// units of 16 floats.
inline constexpr int kMostSentSums = kMostRoundingRows * kTileWeights + (kMostSplit - 1) * 16;

// The units of a tile. With a gate, a unit has 8 gate rows and their 8 up rows of w.
struct SentUnits {
  int columns;   // number of rows of w in a unit
  int of_row;    // number of units in a row of x
  int all;       // number of units in the tile
  int of_block;  // number of units for which a block has room
  int split;     // number of blocks in the cluster

  template <class T>
  __device__ static SentUnits of(const TiledQuantised<T>& p) {
    const int columns = p.gate == Gate::kNone ? 8 : 16;
    const int of_row = kTileWeights / columns;
    const int all = p.m * of_row;
    return {columns, of_row, all, (all + p.split - 1) / p.split, p.split};
  }
  // Returns the number of units that block `rank` stores. The block stores every split-th unit.
  __device__ int count(int rank) const { return (all - rank + split - 1) / split; }
  __device__ std::uint32_t bytes(int rank) const {
    return static_cast<std::uint32_t>(count(rank) * columns * split) * sizeof(float);
  }
};

// Sends the sums [kN, kTileSumRow] at `sums` to the blocks of the cluster that write them to y. `received` is the
// buffer in which this block receives sums from all blocks. Its shape is [sending block, unit, row of w in the unit],
// and it has the same shared-memory address in every block. All threads of the two warpgroups call the function.
__device__ inline void send_sums(const SentUnits& units, const TilePlace& at, std::uint32_t sums, float* received,
                                 const SharedBarrier& arrived) {
  constexpr int kFours = kTileWeights / 4;
  static_assert(kMostRoundingRows * kFours <= kTileWarps * kWarp, "a thread sends four sums at most");
  const int row = static_cast<int>(threadIdx.x) / kFours;
  const int first = static_cast<int>(threadIdx.x) % kFours * 4;
  const int unit = row * units.of_row + first / units.columns;
  if (unit >= units.all) return;
  const float4 four = split_linear::load_of_own(sums + static_cast<std::uint32_t>((row * kTileSumRow + first) * 4));
  const int place = at.rank * units.of_block + unit / units.split;
  send_to_block(received + place * units.columns + first % units.columns, static_cast<unsigned>(unit % units.split),
                four, arrived);
}

// Sets `total` to eight sums, each added over all blocks in the order of the blocks.
__device__ inline void add_received(float (&total)[8], const SentUnits& units, const float* from) {
  for (int block = 0; block < units.split; ++block) {
    const float4 low = *reinterpret_cast<const float4*>(from);
    const float4 high = *reinterpret_cast<const float4*>(from + 4);
    const float part[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int i = 0; i < 8; ++i) total[i] = block == 0 ? part[i] : total[i] + part[i];
    from += units.of_block * units.columns;
  }
}

// Exchanges the sums of a tile, and computes y for the block's units. All threads of the two warpgroups take part.
template <class T>
__device__ inline void store_sent_sums(const TiledQuantised<T>& p, const TilePlace& at, std::uint32_t sums,
                                       float* received, SharedBarrier& arrived) {
  const SentUnits units = SentUnits::of(p);
  send_sums(units, at, sums, received, arrived);
  const auto mine = static_cast<int>(threadIdx.x);
  if (mine >= units.count(at.rank)) return;
  const int unit = mine * units.split + at.rank;
  const int column = at.first_weight * 8 / units.columns + unit % units.of_row * 8;
  const std::int64_t out = static_cast<std::int64_t>(unit / units.of_row) * p.n + column;
  const bool is_real = column < p.n;
  Pack<T, 8> residual{};
  if (is_real) residual = split_linear::residual_at<T>(p, out);
  arrived.wait_for_cluster_stores(0);
  if (!is_real) return;
  const float* const from = received + mine * units.columns;
  split_linear::store_columns<T>(p, column, out, residual,
                                 [&](float(&total)[8], int weight) { add_received(total, units, from + weight); });
}

}  // namespace tessera::cuda::quantised
