// Makes the operator that runs a linear with a gate on Hopper (linear_gated.cuh). The variants with and without
// adapters are instantiated in separate files, because each variant takes long to compile.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/cuda/cuda_shared_memory.h"
#include "tessera/ops/cuda/sm90a_code.h"
#include "tessera/ops/cuda/tensor_map.h"
#include "tessera/ops/linear/linear_cuda.h"
#include "tessera/ops/linear/linear_gated.cuh"
#include "tessera/ops/linear/linear_problem.h"

namespace tessera::cuda::gated_linear {

// This kernel needs at least kFewestRows rows, and 2.5 tiles for each cluster. With fewer rows or tiles, cuBLASLt and a
// separate gate kernel are as fast or faster, because the library splits k or uses smaller tiles
// (docs/measurements/prefill-decode.md).
inline constexpr std::int64_t kFewestRows = 1024;
inline bool has_tiles_enough(std::int64_t items, std::int64_t clusters) { return 2 * items >= 5 * clusters; }

// Returns the number of rows per tile for which the last cluster finishes earliest. A tile takes the time of its rows'
// products plus the time of the store at its end. The other warpgroup's products hide part of the store. The rest of
// the store costs as much as kStoreRows rows at k = 1024.
inline int best_tile_rows(std::int64_t m, std::int64_t across, std::int64_t k, std::int64_t clusters) {
  constexpr std::int64_t kStoreRows = 24;
  std::int64_t best = 0;
  int rows = kHopperRows;
  for (int r = kHopperRows; r >= 2 * kHopperStep; r -= kHopperStep) {
    const std::int64_t turns = ceil_div(ceil_div(m, r) * across, clusters);
    const std::int64_t cost = turns * (r * k + kStoreRows * 1024);
    if (best == 0 || cost < best) best = cost, rows = r;
  }
  return rows;
}

// Returns whether the kernel supports the linear, apart from its number of tiles. `y` is the gate's result.
template <class Changes>
bool supports(const BindArgs& linear, const LinearProblem& p, const std::byte* y) {
  const auto kernel = linear_gated<__nv_bfloat16, Silu, Changes>;
  return allows_own_kernels(linear, p) && p.residual == nullptr && p.m >= kFewestRows && p.k % 8 == 0 &&
         p.n % 16 == 0 && is_aligned(y) && runs_sm90a_code(reinterpret_cast<const void*>(kernel));
}

// A linear with a gate on this device, and how it is launched.
template <class T>
struct Launch {
  GatedLinear<T> linear;
  LaunchShape shape;
};

// Makes the launch of a linear and its gate. Returns nothing if there are too few tiles.
template <class T, class Gate, class Changes>
Result<std::optional<Launch<T>>> make_launch(const LinearProblem& p, std::byte* y) {
  const std::int64_t n = p.n / 2;
  const void* const kernel = reinterpret_cast<const void*>(linear_gated<T, Gate, Changes>);
  const std::int64_t clusters =
      TRY(clusters_at_once(kernel, kHopperThreads, kHopperCluster, kSharedBytes, "linear and gate"));
  const std::int64_t across = ceil_div(n, kClusterColumns);
  const int tile_rows = best_tile_rows(p.m, across, p.k, clusters);
  const std::int64_t items = ceil_div(p.m, tile_rows) * across;
  if (!has_tiles_enough(items, clusters)) return std::optional<Launch<T>>();
  const CUtensorMap x =
      TRY(encode_tensor_map(p.dtype, p.x,
                            std::array{TensorBox{.size = p.k, .stride = 1, .box = kHopperDepth},
                                       TensorBox{.size = p.m, .stride = p.k, .box = tile_rows / kHopperCluster}}));
  const CUtensorMap w =
      TRY(encode_row_groups(p.dtype, p.w, {.matrices = 1, .rows = p.n, .columns = p.k, .first = 8, .second = n},
                            kHopperWeightRows, kHopperDepth));
  const CUtensorMap result = TRY(encode_tensor_map(p.dtype, y,
                                                   std::array{TensorBox{.size = n, .stride = 1, .box = kResultColumns},
                                                              TensorBox{.size = p.m, .stride = n, .box = tile_rows}},
                                                   Swizzle::kNone));
  return std::optional<Launch<T>>(
      {.linear = {.x = x,
                  .w = w,
                  .bias = reinterpret_cast<const T*>(p.bias),
                  .y = result,
                  .m = static_cast<int>(p.m),
                  .n = static_cast<int>(n),
                  .k = static_cast<int>(p.k),
                  .tile_rows = tile_rows},
       .shape = {.grid = dim3(static_cast<unsigned>(std::min(clusters, items) * kHopperCluster)),
                 .block = dim3(kHopperThreads),
                 .cluster = kHopperCluster}});
}

// Calls f.template operator()<Gate>() with the function of the gate's operator. Returns null for the exact GELU,
// because no model in use has many rows with it.
template <class F>
Result<std::unique_ptr<BoundOp>> with_gate(const ir::Node& gate, const F& f) {
  if (gate.op == "silu_mul") return f.template operator()<Silu>();
  if (gate.attribute_or("tanh", true)) return f.template operator()<GeluTanh>();
  return std::unique_ptr<BoundOp>();
}

}  // namespace tessera::cuda::gated_linear
