// Binds a kernel of quantised_tiles.cuh for a format (quantised_tiles.cu, block_tiles.cu).
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "tessera/ops/quantised/quantised_bind.cuh"
#include "tessera/ops/quantised/quantised_kernels.cuh"
#include "tessera/ops/quantised/quantised_tiles.cuh"

namespace tessera::cuda::quantised {

inline const char* tiles_name(const QuantisedCall& p) {
  return p.gate == Gate::kNone ? "quantised_linear, tiles" : "quantised_linear and gate, tiles";
}

// Weights of eight bits have shorter stages if a tile has more than 128 rows, because the ring would otherwise have
// room for only two stages. `kGroups` is for a stage of kMostStageColumns columns.
template <class T, Values kValues, StageGroups kGroups, int kN>
using TilesProduct = ConvertedProduct<T, kValues, (kN > 128 && !is_packed(kValues) ? kGroups.half() : kGroups), kN>;

template <class T, Values kValues, StageGroups kGroups, int kN>
Result<std::unique_ptr<BoundOp>> make_tiles(const QuantisedCall& p) {
  return make_block<TilesProduct<T, kValues, kGroups, kN>>(tiles_name(p), p, {.data = p.x, .elements = p.k});
}

// Returns an estimate of the time that the product takes with tiles of kN rows of x. The time of a stage is
// proportional to 170 + kN, as measured with int4 on an H200. The 170 stand for converting w, which takes a constant
// time. The time of multiplying grows with the number of rows of x.
template <class T, Values kValues, StageGroups kGroups, int kN>
Result<double> tiles_cost(const QuantisedCall& p) {
  using Product = TilesProduct<T, kValues, kGroups, kN>;
  const TilePlan plan = TRY((plan_tiles<Product>(tiles_name(p), p)));
  return plan.turns * static_cast<double>(Product::kColumns * (170 + kN));
}

template <class T, Values kValues, StageGroups kGroups>
Result<std::unique_ptr<BoundOp>> make_tiles(const QuantisedCall& p) {
  if (p.m <= 32) return make_tiles<T, kValues, kGroups, 32>(p);
  if (p.m <= 64) return make_tiles<T, kValues, kGroups, 64>(p);
  if (p.m > 128) {
    const double narrow = TRY((tiles_cost<T, kValues, kGroups, 128>(p)));
    const double medium = TRY((tiles_cost<T, kValues, kGroups, 192>(p)));
    const double wide = TRY((tiles_cost<T, kValues, kGroups, 256>(p)));
    if (wide < std::min(narrow, medium)) return make_tiles<T, kValues, kGroups, 256>(p);
    if (medium < narrow) return make_tiles<T, kValues, kGroups, 192>(p);
  }
  return make_tiles<T, kValues, kGroups, 128>(p);
}

// has_block_tiles() returns whether block_tiles.cu supports the matrix. block_tiles.cu supports the matrices to which
// block_codes.h converts GGUF's blocks: integers in groups of 16 or 32 columns, each group with a float16 scale, or
// with a float16 scale and offset. bind_block_tiles() binds the kernels of block_tiles.cu. bind_block_tiles() has the
// precondition quantised_tiles_serve().
bool has_block_tiles(const QuantisedMatrix& w);
Result<std::unique_ptr<BoundOp>> bind_block_tiles(const QuantisedCall& p);

// prefers_group_tiles() returns whether group_tiles.cu supports the call and is faster than the kernels of
// quantised_tiles.cuh. bind_group_tiles() binds the kernel of group_tiles.cu (quantised_groups.cuh).
// prefers_group_tiles() has the precondition quantised_tiles_serve(), and bind_group_tiles() has the precondition
// prefers_group_tiles().
bool prefers_group_tiles(const QuantisedCall& p);
Result<std::unique_ptr<BoundOp>> bind_group_tiles(const QuantisedCall& p);

}  // namespace tessera::cuda::quantised
