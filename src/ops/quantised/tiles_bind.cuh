// Binds a kernel of quantised_tiles.cuh for a format (quantised_tiles.cu, block_tiles.cu).
#pragma once

#include <memory>

#include "tessera/ops/quantised/quantised_bind.cuh"
#include "tessera/ops/quantised/quantised_kernels.cuh"
#include "tessera/ops/quantised/quantised_tiles.cuh"

namespace tessera::cuda::quantised {

template <class T, Values kValues, StageGroups kGroups, int kN>
Result<std::unique_ptr<BoundOp>> make_tiles(const QuantisedCall& p) {
  const char* const name = p.gate == Gate::kNone ? "quantised_linear, tiles" : "quantised_linear and gate, tiles";
  return make_block<ConvertedProduct<T, kValues, kGroups, kN>>(name, p, {.data = p.x, .elements = p.k});
}

template <class T, Values kValues, StageGroups kGroups>
Result<std::unique_ptr<BoundOp>> make_tiles(const QuantisedCall& p) {
  if (p.m <= 32) return make_tiles<T, kValues, kGroups, 32>(p);
  if (p.m <= 64) return make_tiles<T, kValues, kGroups, 64>(p);
  return make_tiles<T, kValues, kGroups, 128>(p);
}

// has_block_tiles() returns whether block_tiles.cu supports the format: integers with float16 scales or pairs for
// groups of 16 or 32 columns, which block_codes.h makes from GGUF's blocks. bind_block_tiles() binds its kernels.
// Precondition of the second: quantised_tiles_serve().
bool has_block_tiles(const QuantisedMatrix& w);
Result<std::unique_ptr<BoundOp>> bind_block_tiles(const QuantisedCall& p);

}  // namespace tessera::cuda::quantised
