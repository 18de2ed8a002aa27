// Binds a kernel of quantised_block.cuh.
#pragma once

#include <algorithm>
#include <array>

#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/cuda/cuda_shared_memory.h"
#include "tessera/ops/cuda/is_aligned.h"
#include "tessera/ops/cuda/tensor_map.h"
#include "tessera/ops/quantised/persistent_tiles.cuh"
#include "tessera/ops/quantised/quantised_block.cuh"
#include "tessera/ops/quantised/quantised_kernels.cuh"

namespace tessera::cuda::quantised {

// How blocks share a product.
struct Arrangement {
  int split = 1;                 // number of blocks in a cluster that splits k
  std::int64_t split_tiles = 0;  // number of tiles whose k is split; they come first
  bool shared = false;           // whether two blocks of a cluster share x
  double turns = 0;              // an estimate of the time, in units of the time of one stage
};

// The time that a block takes at its end to add and store its sums. The unit is the time of one stage of the block's
// ring (measured with int4 on an H200).
inline constexpr std::int64_t kEndStages = 4;

// If memory bandwidth bounds the time, the blocks of a wave that is not full share the bandwidth with fewer others.
// They run faster than in a full wave, at most by these factors (measured with FP8 on an H200). The first is for a last
// wave, which follows full ones. The second is for a lone wave of whole tiles, which all wait for their first stages at
// once. Lone waves of split tiles are taken for as slow as full ones, by which the fastest splits were chosen.
inline constexpr double kLastWaveFaster = 3;
inline constexpr double kLoneWaveFaster = 1.4;

// The sizes of a block's shared memory, which holds a ring of kStages stages.
template <class Product>
struct BlockMemory {
  static constexpr int kMostBytes = kTileBlocks<Product> == 1 ? 226 << 10 : 108 << 10;
  static constexpr int kBesides = 1024 + Product::Ring::kOtherBytes;
  static constexpr int kSlotBytes = Product::Ring::kStageBytes + Product::Ring::kStageScaleBytes;
  static constexpr int kStages = std::min(kMostTileStages, (kMostBytes - kBesides) / kSlotBytes);
  static constexpr std::size_t kBytes = kBesides + static_cast<std::size_t>(kStages) * kSlotBytes;
  static_assert(Product::Ring::kN * kTileSumRow * 4 <= kStages * Product::Ring::kStageBytes);
  static_assert(!Product::kLimitsBoxes || kTileBoxesInFlight<Product> <= kStages);
};

inline std::int64_t weight_tiles_of(const QuantisedCall& p) { return ceil_div(p.n, std::int64_t{kTileWeights}); }

// Chooses how blocks compute `tiles` tiles of the product. A tile is computed by one block (a whole tile), or by a
// cluster of blocks that split its k. Blocks split k if this lowers the estimated time (`turns`) and leaves each block
// at least two stages. In that case whole tiles fill as many waves of all blocks as possible, and only the remaining
// tiles have their k split. Split tiles come first. Because the blocks of split tiles end early, the last whole tiles
// can begin on the multiprocessors that these blocks leave. The number of clusters that run at once is the result of
// clusters_at_once(). It does not follow from the number of blocks: an H200 runs 132 blocks at once, but only 30
// clusters of four. In a deterministic forward no block splits k, because the choice depends on m and would change the
// order of sums.
template <class Product>
Result<Arrangement> arrange(const char* name, const QuantisedCall& p, std::int64_t tiles) {
  const auto* const kernel = reinterpret_cast<const void*>(quantised_block<Product>);
  const std::int64_t stages = ceil_div(p.k, std::int64_t{Product::kColumns});
  const std::int64_t most_blocks = kTileBlocks<Product> * p.workers;
  // turns_of() estimates a time in units of one stage: the time of `full` waves of `most` blocks (or clusters) each,
  // plus the time of a last wave of `rest` blocks. `of_block` is the number of a block's stages, and `faster_alone` is
  // how much faster the last wave runs at most if there are no full ones. With few rows of x, memory bandwidth bounds
  // the time.
  constexpr bool kBoundByMemory = kTileBlocks<Product> == 2;
  const auto turns_of = [](std::int64_t full, std::int64_t rest, std::int64_t most, std::int64_t of_block,
                           double faster_alone) {
    if (rest == 0) return static_cast<double>(full * (of_block + kEndStages));
    const double most_faster = !kBoundByMemory ? 1.0 : full > 0 ? kLastWaveFaster : faster_alone;
    const double faster = std::clamp(static_cast<double>(most) / static_cast<double>(rest), 1.0, most_faster);
    return static_cast<double>(full * (of_block + kEndStages) + kEndStages) + static_cast<double>(of_block) / faster;
  };
  Arrangement best{.shared = !Product::kRounds && !Product::kRowsFirst && tiles >= most_blocks,
                   .turns = turns_of(tiles / most_blocks, tiles % most_blocks, most_blocks, stages, kLoneWaveFaster)};
  if (p.deterministic) return best;
  for (int split = 2; split <= kMostSplit && stages >= 2 * split; ++split) {
    const std::int64_t clusters =
        TRY(clusters_at_once(kernel, kTileThreads<Product>, split, BlockMemory<Product>::kBytes, name));
    const std::int64_t whole = tiles / (clusters * split);  // number of waves of whole tiles
    const std::int64_t rest = tiles - whole * clusters * split;
    const double turns = static_cast<double>(whole * (stages + kEndStages)) +
                         turns_of(rest / clusters, rest % clusters, clusters, ceil_div(stages, std::int64_t{split}),
                                  whole > 0 ? kLastWaveFaster : 1.0);
    if (turns < best.turns) best = {.split = split, .split_tiles = rest, .turns = turns};
  }
  return best;
}

// kPersists says whether persistent_tiles() computes tiles of a Product, if there are enough tiles. For example, it is
// false if the Product leaves a thread no registers (kHoldsParts). PersistentMemory has the sizes of the shared memory
// of persistent_tiles().
template <class Product>
inline constexpr bool kPersists = !Product::kRounds && Product::Ring::kStageScaleBytes == 0 && !Product::kLimitsBoxes &&
                                  !Product::kHoldsParts && kMovesRegisters<Product>;
template <class Product>
struct PersistentMemory {
  static constexpr int kMostBytes = 226 << 10;
  static constexpr int kStages =
      std::min(kMostTileStages, (kMostBytes - 1024 - kStoreBytes) / Product::Ring::kStageBytes);
  static constexpr std::size_t kBytes = 1024 + kStages * Product::Ring::kStageBytes + kStoreBytes;
};

// How two kernels share the tiles of a product. persistent_tiles() computes the first tiles in pairs, and
// quantised_block() computes the rest, one tile for each block or cluster.
struct TilePlan {
  std::int64_t pairs = 0;     // number of pairs of tiles that persistent blocks compute
  std::int64_t clusters = 0;  // number of clusters of two persistent blocks
  std::int64_t rest = 0;      // number of tiles after these pairs
  Arrangement of_rest;
  double turns = 0;  // an estimate of the time, like Arrangement::turns
};

// The time that a persistent block saves on each tile after its first, compared with a block for each tile. It is
// expressed as the number of columns of k that are multiplied in this time (measured on an H200).
inline constexpr int kPersistentColumns = 512;

// Chooses the fastest of three ways: no persistent blocks, persistent blocks for all tiles, or persistent blocks only
// for rounds in which every cluster has a pair of tiles. Fewer than two rounds gain nothing.
template <class Product>
Result<TilePlan> plan_tiles(const char* name, const QuantisedCall& p) {
  const std::int64_t row_tiles = ceil_div(p.m, std::int64_t{Product::Ring::kN});
  const std::int64_t tiles = row_tiles * weight_tiles_of(p);
  const Arrangement alone = TRY(arrange<Product>(name, p, tiles));
  TilePlan best{.rest = tiles, .of_rest = alone, .turns = alone.turns};
  if constexpr (kPersists<Product>) {
    using Memory = PersistentMemory<Product>;
    const auto* const kernel = reinterpret_cast<const void*>(persistent_tiles<Product>);
    const std::int64_t clusters = TRY(clusters_at_once(kernel, kTileThreads<Product>, 2, Memory::kBytes, name));
    const std::int64_t pairs = row_tiles * ceil_div(weight_tiles_of(p), std::int64_t{2});
    if (pairs < 2 * clusters) return best;
    constexpr std::int64_t kSaved = kPersistentColumns / Product::kColumns;
    const std::int64_t stages = ceil_div(p.k, std::int64_t{Product::kColumns});
    const std::int64_t turn = std::max(stages + kEndStages - kSaved, std::int64_t{1});
    const auto all = static_cast<double>(ceil_div(pairs, clusters) * turn + kSaved);
    if (all < best.turns) best = {.pairs = pairs, .clusters = clusters, .of_rest = {}, .turns = all};
    const std::int64_t whole = pairs / clusters * clusters / row_tiles * row_tiles;  // the rest begins with x's row 0
    const std::int64_t rest = tiles - 2 * whole;
    if (rest <= 0) return best;
    const Arrangement of_rest = TRY(arrange<Product>(name, p, rest));
    const double both = static_cast<double>(ceil_div(whole, clusters) * turn + kSaved) + of_rest.turns;
    if (both < best.turns)
      best = {.pairs = whole, .clusters = clusters, .rest = rest, .of_rest = of_rest, .turns = both};
  }
  return best;
}

// Makes the tensor map of w's values. A box has the rows of a tile, and `row_bytes` bytes of each row. `row_bytes` is
// 64 or 128.
inline Result<CUtensorMap> map_of_values(const QuantisedCall& p, int row_bytes) {
  const std::int64_t elements = p.w.row_bytes() / 2;  // the map's elements have 16 bits
  const int box = row_bytes / 2;
  const Swizzle swizzle = row_bytes == 128 ? Swizzle::k128Bytes : Swizzle::k64Bytes;
  if (p.gate == Gate::kNone)
    return encode_tensor_map(ir::DType::kBFloat16, p.w.values,
                             std::array{TensorBox{.size = elements, .stride = 1, .box = box},
                                        TensorBox{.size = p.n, .stride = elements, .box = kTileWeights}},
                             swizzle);
  return encode_row_groups(ir::DType::kBFloat16, p.w.values,
                           {.matrices = 1, .rows = p.n, .columns = elements, .first = 8, .second = p.n / 2},
                           kTileWeights, box, swizzle);
}

// The rows of x in the form that the kernel's copies read.
struct TileRows {
  const void* data;
  std::int64_t elements;          // number of 16-bit elements in a row
  const float* scales = nullptr;  // only for converted rows
  std::int64_t scale_stride = 0;  // distance between the scales of neighbouring stages
};

// Returns the tensor map of x. A box has `box_rows` rows of x. Each row of x takes `planes` rows in memory.
inline Result<CUtensorMap> map_of_rows(const QuantisedCall& p, const TileRows& rows, int box_rows, int planes) {
  return encode_tensor_map(
      ir::DType::kBFloat16, rows.data,
      std::array{TensorBox{.size = rows.elements, .stride = 1, .box = kBoxRowBytes / 2},
                 TensorBox{.size = p.m * planes, .stride = rows.elements, .box = box_rows * planes}});
}

template <class Product>
Result<std::unique_ptr<BoundOp>> make_block(const char* name, const QuantisedCall& p, const TileRows& rows) {
  using T = typename Product::Element;
  constexpr auto kKernel = quantised_block<Product>;
  constexpr int kN = Product::Ring::kN;
  constexpr std::size_t kBytes = BlockMemory<Product>::kBytes;
  const std::int64_t row_tiles = ceil_div(p.m, std::int64_t{kN});
  const TilePlan plan = TRY(plan_tiles<Product>(name, p));
  const Arrangement& a = plan.of_rest;
  CUtensorMap x{};
  if constexpr (!Product::kRounds) x = TRY(map_of_rows(p, rows, a.shared ? kN / 2 : kN, Product::Ring::kPlanes));
  const CUtensorMap values = TRY(map_of_values(p, Product::kWeightRowBytes));
  const TiledQuantised<T> bound{
      .x = x,
      .rows = reinterpret_cast<const T*>(p.x),
      .values = values,
      .w = p.w,
      .x_scales = rows.scales,
      .scale_stride = static_cast<int>(rows.scale_stride),
      .bias = reinterpret_cast<const T*>(p.bias),
      .residual = reinterpret_cast<const T*>(p.residual),
      .y = reinterpret_cast<T*>(p.y),
      .m = static_cast<int>(p.m),
      .n = static_cast<int>(p.y_columns()),
      .k = static_cast<int>(p.k),
      .row_tiles = static_cast<int>(row_tiles),
      .first_tile = static_cast<int>(2 * plan.pairs),
      .split = a.split,
      .split_tiles = static_cast<int>(a.split_tiles),
      .shared = a.shared,
      .stages = BlockMemory<Product>::kStages,
      .group_shift = group_shift_of(p.w),
      .scales_aligned = p.w.num_groups % 4 == 0 && is_aligned(p.w.scales) && is_aligned(p.w.zeros),
      .gate = p.gate};
  TRY(allow_shared_memory(reinterpret_cast<const void*>(kKernel), kBytes, name));
  const unsigned cluster = a.shared ? 2 : static_cast<unsigned>(a.split);
  const std::int64_t clusters = a.shared ? row_tiles * ceil_div(weight_tiles_of(p), std::int64_t{2}) - plan.pairs
                                         : a.split_tiles + (plan.rest - a.split_tiles) / a.split;
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(clusters) * cluster),
                          .block = dim3(kTileThreads<Product>),
                          .cluster = cluster};
  const auto launch_rest = [=](cudaStream_t stream) {
    launch_with(kKernel, shape, kBytes, /*early=*/true, stream, bound);
  };
  if constexpr (kPersists<Product>) {
    if (plan.pairs > 0) {
      constexpr auto kPersistent = persistent_tiles<Product>;
      constexpr std::size_t kPersistentBytes = PersistentMemory<Product>::kBytes;
      TRY(allow_shared_memory(reinterpret_cast<const void*>(kPersistent), kPersistentBytes, name));
      TiledQuantised<T> whole = bound;
      whole.x = TRY(map_of_rows(p, rows, kN / 2, Product::Ring::kPlanes));
      whole.shared = true;
      whole.stages = PersistentMemory<Product>::kStages;
      const LaunchShape blocks{
          .grid = dim3(static_cast<unsigned>(2 * plan.clusters)), .block = dim3(kTileThreads<Product>), .cluster = 2};
      return make_cuda_op(
          name,
          [=](cudaStream_t stream) {
            launch_with(kPersistent, blocks, kPersistentBytes, /*early=*/true, stream, whole,
                        static_cast<int>(plan.pairs));
            launch_rest(stream);
          },
          /*choice=*/plan.rest > 0 ? 1 : 0);
    }
  }
  return make_cuda_op(name, launch_rest);
}

}  // namespace tessera::cuda::quantised
