// The code that quantised_linear's kernels of tiles on Hopper share (quantised_tiles.cuh, quantised_fp8.cuh): the
// arrangement of blocks, the ring of stages in shared memory, and the store of a tile's results.
//
// A block computes 128 rows of w by kN rows of x. One warp copies stages of 64 or 128 columns of k to the ring. It
// starts the first copies of weights before the preceding kernels have ended. Each of two warpgroups multiplies 64 rows
// of w by all rows of x; a template parameter, Product, says how. The blocks of a cluster do one of two things:
//   - with few tiles they split k. At the end each block leaves its sums in its own shared memory, and adds the sums of
//     all blocks for its share of the rows of x (linear_split.cuh). With a few more tiles than blocks that run at once,
//     only the first clusters do so, and each block after them computes a whole tile;
//   - with many tiles two blocks compute neighbouring tiles of w for the same rows of x, and share the copies of x.
#pragma once

#include "tessera/ops/cuda/async_copy.cuh"
#include "tessera/ops/cuda/box_copy.cuh"
#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/cuda/wgmma.cuh"
#include "tessera/ops/linear/linear_split.cuh"
#include "tessera/ops/quantised/quantised_values.cuh"

namespace tessera::cuda::quantised {

inline constexpr int kTileWeights = 128;  // rows of w in a tile
inline constexpr int kTileWarpgroups = 2;
inline constexpr int kMostStageColumns = 128;
inline constexpr int kBoxRowBytes = 128;  // bytes of a row of x in a box
inline constexpr int kMostTileStages = 8;
// The maximum number of blocks of a cluster that split k. Larger clusters would be faster alone, but after other
// kernels they wait longer until a group of multiprocessors has room for all their blocks.
inline constexpr int kMostSplit = 6;
inline constexpr int kTileWarps = kTileWarpgroups * kWarpgroup / kWarp;  // warps that multiply
inline constexpr int kTileSumRow = kTileWeights + 4;

// Says whether the warpgroups that multiply take over registers from the thread that starts the copies. If so, this
// thread has a whole warpgroup to itself, because only a whole warpgroup can give up registers.
template <int kN>
inline constexpr bool kMovesRegisters = kN > 128;
template <int kN>
inline constexpr int kTileThreads = kTileWarpgroups* kWarpgroup + (kMovesRegisters<kN> ? kWarpgroup : kWarp);

// The number of blocks that run on a multiprocessor. With few rows there are two, so that one loads while the other
// converts or adds.
template <int kN>
inline constexpr int kTileBlocks = kN <= 64 ? 2 : 1;

template <class T>
struct TiledQuantised {
  // [m, k], or bytes of rounded rows in 16-bit elements; boxes of kN rows, or of half as many if blocks share x
  CUtensorMap x;
  CUtensorMap values;     // [n, bytes of a row], in 16-bit elements; gated: 8 gate rows alternate with their 8 up rows
  QuantisedMatrix w;      // [n or 2n, k]
  const float* x_scales;  // scales of rounded rows (rounded_rows.cuh); null: x is not rounded
  int scale_stride;       // stride of x_scales
  const T* bias;          // [n or 2n]; null: no bias
  const T* residual;      // [m, n]; null: no residual
  T* y;                   // [m, n]
  int m;
  int n;
  int k;
  int row_tiles;
  int split;            // blocks of a cluster that split k
  int split_tiles;      // tiles whose k is split; they come first, and each later tile has one block
  bool shared;          // two blocks of a cluster share x
  int stages;           // stages of the ring
  int group_shift;      // column k has the scale k >> group_shift of its row
  bool scales_aligned;  // the scales of each four groups of a row are aligned, and so are the zeros
  Gate gate;
};

// The part of a product that a block computes.
struct TilePlace {
  int rank;     // the block's number in its cluster
  bool splits;  // the cluster's blocks split k
  int first_row;
  int first_weight;
  int first;  // the block's first stage
  int count;  // number of the block's stages

  // A stage has kColumns columns.
  template <int kN, int kColumns, class T>
  __device__ static TilePlace of(const TiledQuantised<T>& p) {
    TilePlace at;
    const auto block = static_cast<int>(blockIdx.x);
    const int cluster = p.shared ? 2 : p.split;
    at.rank = block % cluster;
    at.splits = !p.shared && block < p.split_tiles * p.split;
    const int tile = p.shared || at.splits ? block / cluster : block - p.split_tiles * (p.split - 1);
    at.first_row = tile % p.row_tiles * kN;
    at.first_weight = (p.shared ? tile / p.row_tiles * 2 + at.rank : tile / p.row_tiles) * kTileWeights;
    const int stages = (p.k + kColumns - 1) / kColumns;
    at.first = at.splits ? stages * at.rank / cluster : 0;
    at.count = (at.splits ? stages * (at.rank + 1) / cluster : stages) - at.first;
    return at;
  }
};

// The ring of stages of a block. A stage has kWeightBytes of w and kRowBoxes boxes of x. Scales of x lie after all
// stages.
template <int kN_, int kWeightBytes, int kRowBoxes_>
struct TileRing {
  static constexpr int kN = kN_;
  static constexpr int kRowBoxes = kRowBoxes_;
  static constexpr int kBoxBytes = kN * kBoxRowBytes;
  static constexpr int kStageBytes = kWeightBytes + kRowBoxes * kBoxBytes;

  std::uint32_t base;
  int stages;
  SharedBarrier* full;
  SharedBarrier* empty;

  __device__ std::uint32_t weights(int slot) const { return base + static_cast<std::uint32_t>(slot) * kStageBytes; }
  __device__ std::uint32_t rows(int slot) const { return weights(slot) + kWeightBytes; }
  __device__ std::uint32_t scales(int slot) const {
    return weights(stages) + static_cast<std::uint32_t>(slot * kN * 4);
  }
  // Every warp calls release() when it has read the slot. The slot is free when all warps have called it.
  __device__ void release(int slot, bool shared) const {
    if (threadIdx.x % kWarp != 0) return;
    if (shared) {
      arrive_at_block(empty[slot], 0);
      arrive_at_block(empty[slot], 1);
    } else {
      empty[slot].arrive();
    }
  }
};

// Starts the copies of a block.
template <class T, class Ring>
struct TileCopies {
  const TiledQuantised<T>& p;
  const TilePlace& at;
  const Ring& ring;
  int weight_bytes;  // bytes of a row of w in a stage
  bool scaled;       // each stage has scales of x

  __device__ void weights(int slot, int stage) const {
    ring.full[slot].arrive_and_expect(Ring::kStageBytes + (scaled ? Ring::kN * 4 : 0));  // includes zero padding
    const int column = stage * weight_bytes / 2;
    if (p.gate == Gate::kNone) {
      copy_box(ring.weights(slot), p.values, ring.full[slot], column, at.first_weight);
    } else {
      copy_box(ring.weights(slot), p.values, ring.full[slot], column, 0, 0, at.first_weight / 16, 0);
    }
  }
  __device__ void rows(int slot, int stage) const {
#pragma unroll
    for (int box = 0; box < Ring::kRowBoxes; ++box) {
      const std::uint32_t to = ring.rows(slot) + static_cast<std::uint32_t>(box * Ring::kBoxBytes);
      const int column = (stage * Ring::kRowBoxes + box) * (kBoxRowBytes / 2);
      if (p.shared) {
        const int share = at.rank * (Ring::kN / 2);
        copy_box_to_all(to + static_cast<std::uint32_t>(share * kBoxRowBytes), p.x, ring.full[slot], 3, column,
                        at.first_row + share);
      } else {
        copy_box(to, p.x, ring.full[slot], column, at.first_row);
      }
    }
    if (scaled)
      bulk_copy(ring.scales(slot), p.x_scales + static_cast<std::int64_t>(stage) * p.scale_stride + at.first_row,
                Ring::kN * 4, ring.full[slot]);
  }
};

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

// Computes y for the block's share of the rows. If kSplit, it adds the sums of all blocks of the cluster; otherwise the
// block has all rows and all sums. A thread has eight columns at a time.
template <class T, int kN, bool kSplit>
__device__ inline void store_tile_share(const TiledQuantised<T>& p, std::uint32_t sums, const TilePlace& place) {
  const auto add = [&](float(&total)[8], std::uint32_t from) {
    if constexpr (kSplit) {
      split_linear::add_blocks<kMostSplit>(total, from, p.split);
    } else {
      split_linear::add_blocks<1>(total, from);
    }
  };
  const int share = kSplit ? (kN + p.split - 1) / p.split : kN;
  const int first = kSplit ? place.rank * share : 0;
  const bool is_gated = p.gate != Gate::kNone;
  const int weights = is_gated ? 16 : 8;  // rows of w for a thread
  const int packs = kTileWeights / weights;
  for (int i = static_cast<int>(threadIdx.x); i < share * packs; i += kTileWarps * kWarp) {
    const int at = first + i / packs;
    const int row = place.first_row + at;
    const int column = place.first_weight * 8 / weights + i % packs * 8;
    if (at >= kN || row >= p.m || column >= p.n) continue;
    const std::uint32_t from = sums + static_cast<std::uint32_t>((at * kTileSumRow + i % packs * weights) * 4);
    const std::int64_t out = static_cast<std::int64_t>(row) * p.n + column;
    float total[8];
    add(total, from);
    if (p.bias != nullptr) split_linear::add_pack(total, p.bias + column);
    if (is_gated) {
      float up[8];
      add(up, from + 8 * 4);
      if (p.bias != nullptr) split_linear::add_pack(up, p.bias + p.n + column);
#pragma unroll
      for (int j = 0; j < 8; ++j) total[j] = gated<T>(p.gate, total[j], up[j]);
    }
    if (p.residual != nullptr) split_linear::add_pack(total, p.residual + out);
    *reinterpret_cast<uint4*>(p.y + out) = make_uint4(pack_two<T>(total[0], total[1]), pack_two<T>(total[2], total[3]),
                                                      pack_two<T>(total[4], total[5]), pack_two<T>(total[6], total[7]));
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

// Computes a block's part of y with a Product. Grid: clusters of `split` blocks, or of two that share x; the blocks of
// a cluster are neighbours. Consecutive tiles have the same rows of w and the next rows of x, until x has no more rows.
// Preconditions: n is a multiple of 8, and k is a multiple of 32.
//
// A Product has Ring, Element, kColumns and kWeightRowBytes (of a stage), kScaled (whether stages have scales of x) and
//   multiply(p, at, ring, weight, w_rows, sum, factor),
// which each thread of the two warpgroups calls. It computes the thread's sums over the block's stages, and the factors
// of the thread's two rows of w, `w_rows`. `weight` is the first of these rows, counted within the tile.
template <class Product>
__global__ void __launch_bounds__(kTileThreads<Product::Ring::kN>, kTileBlocks<Product::Ring::kN>)
    quantised_block(const __grid_constant__ TiledQuantised<typename Product::Element> p) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Ring = typename Product::Ring;
  constexpr int kN = Ring::kN;
  extern __shared__ unsigned char unaligned[];
  __shared__ SharedBarrier full[kMostTileStages], empty[kMostTileStages];
  const Ring ring{(shared_address(unaligned) + 1023) / 1024 * 1024, p.stages, full, empty};
  const TilePlace at = TilePlace::of<kN, Product::kColumns>(p);
  const TileCopies<typename Product::Element, Ring> copies{p, at, ring, Product::kWeightRowBytes, Product::kScaled};
  const bool is_copying = threadIdx.x == kTileWarpgroups * kWarpgroup;
  const int ahead = min(p.stages, at.count);
  if (is_copying) {
    prefetch_map(p.values);
    prefetch_map(p.x);
    for (int s = 0; s < p.stages; ++s) {
      full[s].init(1);
      empty[s].init(static_cast<std::uint32_t>(kTileWarps * (p.shared ? 2 : 1)));
    }
    SharedBarrier::make_visible();
    for (int s = 0; s < ahead; ++s) copies.weights(s, at.first + s);
  }
  let_next_begin();
  sync_blocks(p.shared);  // blocks that share x need each other's barriers from here on

  if (threadIdx.x < kTileWarpgroups * kWarpgroup) {
    if constexpr (kMovesRegisters<kN>) keep_registers<232, true>();
    const int weight = static_cast<int>(threadIdx.x / kWarp * 16 + threadIdx.x % kWarp / 4);
    // The thread's two rows of w. With a gate, 8 gate rows alternate with their 8 up rows. Rows past the last are not
    // stored.
    const auto last = static_cast<int>(p.w.rows) - 1;
    const int gate = at.first_weight / 2 + weight / 16 * 8 + weight % 8;
    const int plain = at.first_weight + weight;
    const bool is_gated = p.gate != Gate::kNone;
    const int w_rows[2] = {min(last, is_gated ? gate : plain), min(last, is_gated ? p.n + gate : plain + 8)};
    float sum[kN / 2];
    float factor[2];
    Product::multiply(p, at, ring, weight, w_rows, sum, factor);
    wait_for_previous();  // before the residual is read and y is written
    // The sums overwrite stages of the ring, so all warps must have read these stages first.
    asm volatile("bar.sync 1, %0;" ::"n"(kTileWarpgroups * kWarpgroup) : "memory");
    store_tile_sums<kN>(sum, ring.base, weight, factor);
    sync_blocks(p.shared || at.splits);
    if (at.splits) {
      store_tile_share<typename Product::Element, kN, true>(p, ring.base, at);
    } else {
      store_tile_share<typename Product::Element, kN, false>(p, ring.base, at);
    }
  } else {
    if constexpr (kMovesRegisters<kN>) keep_registers<40, false>();
    wait_for_previous();
    if (is_copying) {
      let_copies_see_stores();
      for (int s = 0; s < ahead; ++s) copies.rows(s, at.first + s);
      for (int s = ahead, slot = 0, turn = 0; s < at.count; ++s) {
        empty[slot].wait(turn & 1);
        copies.weights(slot, at.first + s);
        copies.rows(slot, at.first + s);
        if (++slot == p.stages) slot = 0, ++turn;
      }
    }
    sync_blocks(p.shared || at.splits);
  }
  if (at.splits) leave_cluster();  // other blocks may still read this block's sums
#endif
}

}  // namespace tessera::cuda::quantised
