// Launches the two tensor-core algorithms of moe_experts that run on every GPU. One algorithm sorts rows by expert and
// cuts them into tiles. The other is for few rows and does not sort. moe_experts.cu chooses the algorithm. The kernels
// of one algorithm differ in how they read weights.
#pragma once

#include <algorithm>

#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/cuda/cuda_shared_memory.h"
#include "tessera/ops/moe/moe_few_rows.cuh"
#include "tessera/ops/moe/moe_grouped.cuh"
#include "tessera/ops/moe/moe_order.cuh"
#include "tessera/ops/moe/moe_sum.cuh"

namespace tessera::cuda::moe {

inline constexpr std::int64_t kManyRows = 128;  // rows of a tile in a large prefill
inline constexpr std::int64_t kSomeRows = 64;   // rows of a tile in other cases

// Returns the number of rows in a tile. It is kManyRows if experts have at least kManyRows pairs on average, and
// kSomeRows otherwise.
inline std::int64_t grouped_tile_rows(const ExpertsProblem& p) {
  return most_pairs(p) >= kManyRows * p.routed_experts ? kManyRows : kSomeRows;
}

// The arguments of the kernels in moe_few_rows.cuh, moe_grouped.cuh and moe_plain.cuh, for some of the operator's
// tokens.
template <class T>
struct Launches {
  Matmul<T> gate_up;
  Matmul<T> down;
  Order order;
  const std::int32_t* ids;
  const float* weights;
  T* y;
  std::int64_t tokens;
  std::int64_t pairs;
  int tile_rows;
};

// Makes the launches for the tokens from `begin` on. `rows` is the number of rows in a tile, or 0 if the algorithm has
// no tiles.
template <class T>
Launches<T> launches_of(const ExpertsProblem& p, std::int64_t rows, std::byte* scratch, std::int64_t begin) {
  const Scratch l = lay_out(p, rows == 0 ? 0 : most_tiles(p, rows));
  const std::int64_t tokens = std::min(kMostTokens, p.tokens - begin);
  const auto at = [&](std::size_t offset) { return reinterpret_cast<T*>(scratch + offset); };
  const auto [gate_up, down] = matmuls_of<T>(p, begin, at(l.activated), at(l.rows));
  return {.gate_up = gate_up,
          .down = down,
          .order = l.order(scratch),
          .ids = p.ids + begin * p.top_k,
          .weights = p.weights + begin * p.top_k,
          .y = reinterpret_cast<T*>(p.y) + begin * p.hidden,
          .tokens = tokens,
          .pairs = tokens * p.top_k,
          .tile_rows = static_cast<int>(rows)};
}

template <class T, int N>
void launch_add_up(const Launches<T>& l, const int* place, cudaStream_t stream) {
  const std::int64_t packs = l.down.n / N;
  launch_early(add_up<T, N>, row_shape(l.tokens, packs), stream, l.down.y, l.ids, place, l.weights, l.y, l.tokens,
               packs, l.down.top_k, l.down.experts);
}

// Sorts the pairs (token, k), but copies no rows of x, because these algorithms find a pair's row by the number of its
// token.
template <class T>
void launch_sort(const ExpertsProblem& p, std::int64_t begin, const Launches<T>& l, cudaStream_t stream) {
  launch_order<RowsOfX::kListed>(p, begin, l.tile_rows, l.tile_rows, l.order, nullptr, stream);
}

template <class T, template <class> class Rows>
std::unique_ptr<BoundOp> make_few_rows(const ExpertsProblem& p, std::byte* scratch) {
  const auto pairs = static_cast<unsigned>(p.tokens * p.top_k);
  const auto shape = [&](std::int64_t columns, int of_tile) {
    return LaunchShape{.grid = dim3(static_cast<unsigned>(ceil_div(columns, of_tile)), pairs), .block = dim3(kThreads)};
  };
  const LaunchShape gate_up = shape(p.intermediate, kFewWeightRows / 2);
  const LaunchShape down = shape(p.hidden, kFewWeightRows);
  const Launches<T> l = launches_of<T>(p, 0, scratch, 0);
  return make_cuda_op("moe_experts, few rows", [=](cudaStream_t stream) {
    const auto count = static_cast<int>(l.pairs);
    launch_early(few_rows<T, true, Rows>, gate_up, stream, l.gate_up, l.ids, count);
    launch_early(few_rows<T, false, Rows>, down, stream, l.down, l.ids, count);
    launch_add_up<T, kPackSize<T>>(l, nullptr, stream);
  });
}

// The launch shape of a kernel that walks the list of tiles. It has as many blocks as the device runs at once, or fewer
// if there are fewer tiles.
struct TileKernel {
  LaunchShape shape;
  std::size_t shared_bytes = 0;
};

inline Result<TileKernel> tile_kernel(const void* kernel, std::size_t shared_bytes, std::int64_t tiles,
                                      std::int64_t multiprocessors) {
  TRY(allow_shared_memory(kernel, shared_bytes, "moe_experts"));
  const int blocks = TRY(blocks_per_multiprocessor(kernel, kThreads, shared_bytes, "moe_experts"));
  const std::int64_t grid = std::min(tiles, blocks * multiprocessors);
  return TileKernel{.shape = {.grid = dim3(static_cast<unsigned>(grid)), .block = dim3(kThreads)},
                    .shared_bytes = shared_bytes};
}

template <class T, int kRows, template <class, int, bool> class WeightCopy>
Result<std::unique_ptr<BoundOp>> make_grouped(const ExpertsProblem& p, std::byte* scratch,
                                              std::int64_t multiprocessors) {
  constexpr std::size_t kShared = static_cast<std::size_t>(kStages) * kStageBytes<kRows>;
  const std::int64_t tiles = most_tiles(p, kRows);
  const TileKernel gate_up =
      TRY(tile_kernel(reinterpret_cast<const void*>(grouped<T, kRows, true, WeightCopy>), kShared,
                      tiles * ceil_div(p.intermediate, kTileWeightRows / 2), multiprocessors));
  const TileKernel down = TRY(tile_kernel(reinterpret_cast<const void*>(grouped<T, kRows, false, WeightCopy>), kShared,
                                          tiles * ceil_div(p.hidden, kTileWeightRows), multiprocessors));
  return make_cuda_op("moe_experts, grouped", [=](cudaStream_t stream) {
    for (std::int64_t begin = 0; begin < p.tokens; begin += kMostTokens) {
      const Launches<T> l = launches_of<T>(p, kRows, scratch, begin);
      const bool early = can_launch_early();
      launch_sort(p, begin, l, stream);
      launch_with(grouped<T, kRows, true, WeightCopy>, gate_up.shape, gate_up.shared_bytes, early, stream, l.gate_up,
                  l.order);
      launch_with(grouped<T, kRows, false, WeightCopy>, down.shape, down.shared_bytes, early, stream, l.down, l.order);
      launch_add_up<T, kPackSize<T>>(l, l.order.place, stream);
    }
  });
}

// Binds one of the two tensor-core algorithms. If `few` is true, it is the algorithm without tiles, which reads weights
// through `Rows`. Otherwise it is the algorithm with tiles, which reads weights through `WeightCopy`.
template <class T, template <class> class Rows, template <class, int, bool> class WeightCopy>
Result<std::unique_ptr<BoundOp>> make_tiles(const ExpertsProblem& p, std::byte* scratch, std::int64_t multiprocessors,
                                            bool few) {
  if (few) return make_few_rows<T, Rows>(p, scratch);
  return grouped_tile_rows(p) == kManyRows ? make_grouped<T, kManyRows, WeightCopy>(p, scratch, multiprocessors)
                                           : make_grouped<T, kSomeRows, WeightCopy>(p, scratch, multiprocessors);
}

}  // namespace tessera::cuda::moe
