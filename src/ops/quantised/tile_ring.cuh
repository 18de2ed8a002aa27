// Defines what a block of quantised_block.cuh works on: the kernel's arguments, the block's part of the product, the
// ring of stages in shared memory, and the copies that fill the ring.
#pragma once

#include "tessera/ops/cuda/async_copy.cuh"
#include "tessera/ops/cuda/box_copy.cuh"
#include "tessera/ops/cuda/wgmma.cuh"
#include "tessera/ops/quantised/quantised_values.cuh"

namespace tessera::cuda::quantised {

inline constexpr int kTileWeights = 128;  // number of rows of w in a tile
inline constexpr int kTileWarpgroups = 2;
inline constexpr int kMostStageColumns = 128;  // in fixed point a stage has 256 instead (quantised_fixed.cuh)
inline constexpr int kBoxRowBytes = 128;       // bytes of a row of x in a box
inline constexpr int kMostTileStages = 8;
// The maximum number of blocks in a cluster whose blocks split k. Larger clusters are faster if the kernel runs alone,
// but after other kernels they wait longer until a group of multiprocessors has room for all their blocks.
inline constexpr int kMostSplit = 6;
inline constexpr int kTileWarps = kTileWarpgroups * kWarpgroup / kWarp;  // number of warps that multiply
inline constexpr int kTileSumRow = kTileWeights + 4;

// Says whether the warpgroups that multiply take over registers from the thread that starts the copies. If so, this
// thread has a whole warpgroup to itself, because only a whole warpgroup can give up registers.
template <class Product>
inline constexpr bool kMovesRegisters = Product::Ring::kN > 128 || Product::kHoldsParts;

inline constexpr int kMostRoundingRows = 8;  // maximum number of rows of x that blocks round themselves
// The number of warps that round x. They take the stages in turn, because a load of x takes longer than a product of a
// stage.
inline constexpr int kRounders = 4;
template <class Product>
inline constexpr int kRoundingWarps = Product::kRounds ? kRounders : 0;
template <class Product>
inline constexpr int kTileThreads = kTileWarpgroups* kWarpgroup +
                                    (kMovesRegisters<Product> ? kWarpgroup : kWarp) + kRoundingWarps<Product>* kWarp;

// The number of blocks that run on a multiprocessor. With few rows there are two, so that one block loads while the
// other converts or adds. A block that moves registers has the multiprocessor to itself.
template <class Product>
inline constexpr int kTileBlocks = Product::Ring::kN <= 64 && !kMovesRegisters<Product> ? 2 : 1;

// The maximum number of TMA boxes of w that a block has in flight, if its Product limits this number. A block that has
// a multiprocessor to itself has as many in flight as two blocks that share one.
template <class Product>
inline constexpr int kTileBoxesInFlight = kBoxesInFlight * 2 / kTileBlocks<Product>;

// The rows of w and x whose sums a thread holds, for a Product (quantised_block.cuh) that does not rearrange the rows.
// They are the rows that wgmma's accumulator layout gives the thread.
struct UsualSums {
  static constexpr bool kRowsFirst = false;
  static constexpr bool kHoldsParts = false;
  static constexpr int kNextRow = 1;
  __device__ static int first_weight() { return static_cast<int>(threadIdx.x / kWarp * 16 + threadIdx.x % kWarp / 4); }
};

template <class T>
struct TiledQuantised {
  // The tensor map of x [m, k], or of converted rows. In the map of converted rows, two bytes count as one 16-bit
  // element. A box has kN rows, or half as many if blocks share x. If Ring::kPlanes is 2, each row of x is two rows of
  // the map. Products that round x read `rows` instead.
  CUtensorMap x;
  const T* rows;          // [m, k]
  CUtensorMap values;     // [n or 2n, bytes of a row] in 16-bit elements; gated: 8 gate rows and 8 up rows alternate
  QuantisedMatrix w;      // [n or 2n, k]
  const float* x_scales;  // scales of converted rows (rounded_rows.cuh, fixed_rows.cuh); null: x is not converted
  int scale_stride;       // distance between the scales of neighbouring stages
  const T* bias;          // [n or 2n]; null: no bias
  const T* residual;      // [m, n]; null: no residual
  T* y;                   // [m, n]
  int m;
  int n;
  int k;
  int row_tiles;
  int first_tile;       // number of the first tile of quantised_block(); another kernel computes the tiles before it
  int split;            // number of blocks in a cluster that splits k
  int split_tiles;      // number of tiles whose k is split; they come first, and each later tile has one block
  bool shared;          // whether two blocks of a cluster share x
  int stages;           // number of stages in the ring
  int group_shift;      // column k has the scale k >> group_shift of its row
  bool scales_aligned;  // the scales, and the zeros, of every four groups of a row are aligned
  Gate gate;
};

// The part of a product that a block computes.
struct TilePlace {
  int rank;     // the block's number in its cluster
  bool splits;  // whether the cluster's blocks split k
  int first_row;
  int first_weight;
  int first;  // number of the block's first stage
  int count;  // number of the block's stages

  // Returns the place of this block. A stage has kColumns columns.
  template <int kN, int kColumns, class T>
  __device__ static TilePlace of(const TiledQuantised<T>& p) {
    TilePlace at;
    const auto block = static_cast<int>(blockIdx.x);
    const int cluster = p.shared ? 2 : p.split;
    at.rank = block % cluster;
    at.splits = !p.shared && block < p.split_tiles * p.split;
    const int tile = (p.shared ? p.first_tile / 2 : p.first_tile) +
                     (p.shared || at.splits ? block / cluster : block - p.split_tiles * (p.split - 1));
    at.take_tile<kN>(tile, p.row_tiles, p.shared);
    const int stages = (p.k + kColumns - 1) / kColumns;
    at.first = at.splits ? stages * at.rank / cluster : 0;
    at.count = (at.splits ? stages * (at.rank + 1) / cluster : stages) - at.first;
    return at;
  }

  // Sets first_row and first_weight to those of a tile. If two blocks share x (`shared`), `tile` counts pairs of tiles,
  // and each block takes one tile of the pair.
  template <int kN>
  __device__ void take_tile(int tile, int row_tiles, bool shared) {
    first_row = tile % row_tiles * kN;
    first_weight = (shared ? tile / row_tiles * 2 + rank : tile / row_tiles) * kTileWeights;
  }
};

// A position in the ring: a slot, and how many times the block has gone through the whole ring before.
struct RingPlace {
  int slot = 0;
  int turn = 0;

  __device__ void advance(int stages) {
    if (++slot == stages) slot = 0, ++turn;
  }
};

// The ring of stages of a block. A stage has kWeightBytes of w and kRowBoxes boxes of x. A box has kPlanes rows of
// kBoxRowBytes for each row of x. The scales of x lie after all stages. For each stage, a row of x has kRowScaleBytes
// bytes of scales, or 0 if there are no scales. After the scales, a Product has kOtherBytes for its own use.
template <int kN_, int kWeightBytes_, int kRowBoxes_, int kPlanes_ = 1, int kRowScaleBytes_ = 0, int kOtherBytes_ = 0>
struct TileRing {
  static constexpr int kN = kN_;
  static constexpr int kWeightBytes = kWeightBytes_;
  static constexpr int kRowBoxes = kRowBoxes_;
  static constexpr int kPlanes = kPlanes_;
  static constexpr int kBoxBytes = kN * kPlanes * kBoxRowBytes;
  static constexpr int kStageBytes = kWeightBytes + kRowBoxes * kBoxBytes;  // without scales
  static constexpr int kStageScaleBytes = kN * kRowScaleBytes_;
  static constexpr int kOtherBytes = kOtherBytes_;

  std::uint32_t base;
  int stages;
  SharedBarrier* weights_full;  // [stages]
  SharedBarrier* rows_full;     // [stages], for rows of x and their scales; may be the same barriers as weights_full
  SharedBarrier* empty;         // [stages]

  __device__ std::uint32_t weights(int slot) const { return base + static_cast<std::uint32_t>(slot) * kStageBytes; }
  __device__ std::uint32_t rows(int slot) const { return weights(slot) + kWeightBytes; }
  __device__ std::uint32_t scales(int slot) const {
    return weights(stages) + static_cast<std::uint32_t>(slot * kStageScaleBytes);
  }
  __device__ std::uint32_t other() const { return scales(stages); }
  // Every warp calls release() when it has read the slot. The slot is free when all warps have called release().
  __device__ void release(int slot, bool shared) const { release_at(empty[slot].address(), shared); }
  // Does what release() does. `address` is the address of the slot's barrier in `empty`.
  __device__ static void release_at(std::uint32_t address, bool shared) {
    if (threadIdx.x % kWarp != 0) return;
    if (shared) {
      arrive_at_block(address, 0);
      arrive_at_block(address, 1);
    } else {
      SharedBarrier::arrive_at(address);
    }
  }
};

// Starts the copies of a block.
template <class T, class Product>
struct TileCopies {
  using Ring = typename Product::Ring;
  static constexpr int kScaleBytes = Ring::kStageScaleBytes;

  const TiledQuantised<T>& p;
  const TilePlace& at;
  const Ring& ring;

  __device__ void weights(int slot, int stage) const {
    SharedBarrier& full = ring.weights_full[slot];
    full.arrive_and_expect(Ring::kWeightBytes);  // includes the zeros past the end of w
    const int column = stage * Product::kWeightRowBytes / 2;
    if (p.gate == Gate::kNone) {
      copy_box(ring.weights(slot), p.values, full, column, at.first_weight);
    } else {
      copy_box(ring.weights(slot), p.values, full, column, 0, 0, at.first_weight / 16, 0);
    }
  }
  __device__ void rows(int slot, int stage) const {
    SharedBarrier& full = ring.rows_full[slot];
    full.arrive_and_expect(Ring::kRowBoxes * Ring::kBoxBytes + kScaleBytes);  // includes the zeros past the end of x
#pragma unroll
    for (int box = 0; box < Ring::kRowBoxes; ++box) {
      const std::uint32_t to = ring.rows(slot) + static_cast<std::uint32_t>(box * Ring::kBoxBytes);
      const int column = (stage * Ring::kRowBoxes + box) * (kBoxRowBytes / 2);
      if (p.shared) {
        const int share = at.rank * (Ring::kN / 2) * Ring::kPlanes;
        copy_box_to_all(to + static_cast<std::uint32_t>(share * kBoxRowBytes), p.x, full, 3, column,
                        at.first_row * Ring::kPlanes + share);
      } else {
        copy_box(to, p.x, full, column, at.first_row * Ring::kPlanes);
      }
    }
    if constexpr (kScaleBytes > 0)
      bulk_copy(ring.scales(slot), p.x_scales + static_cast<std::int64_t>(stage) * p.scale_stride + at.first_row,
                kScaleBytes, full);
  }
};

}  // namespace tessera::cuda::quantised
