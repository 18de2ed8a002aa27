// Binds a kernel of quantised_tiles.cuh for a format (quantised_tiles.cu, block_tiles.cu).
#pragma once

#include <memory>

#include "tessera/ops/quantised/quantised_bind.cuh"
#include "tessera/ops/quantised/quantised_kernels.cuh"
#include "tessera/ops/quantised/quantised_tiles.cuh"

namespace tessera::cuda::quantised {

inline const char* tiles_name(const QuantisedCall& p) {
  return p.gate == Gate::kNone ? "quantised_linear, tiles" : "quantised_linear and gate, tiles";
}

template <class T, Values kValues, StageGroups kGroups, int kN>
Result<std::unique_ptr<BoundOp>> make_tiles(const QuantisedCall& p) {
  return make_block<ConvertedProduct<T, kValues, kGroups, kN>>(tiles_name(p), p, {.data = p.x, .elements = p.k});
}

// Says whether tiles of 256 rows of x are faster than tiles of 128. A stage of 256 rows takes 1.43 times as long as one
// of 128, because its conversion serves all of them, and the end of a tile takes as long as four stages (int4 on an
// H200).
template <class T, Values kValues, StageGroups kGroups>
Result<bool> takes_wide_tiles(const QuantisedCall& p) {
  if (p.m <= 128) return false;
  const Arrangement wide = TRY((arrange<ConvertedProduct<T, kValues, kGroups, 256>>(tiles_name(p), p)));
  const Arrangement narrow = TRY((arrange<ConvertedProduct<T, kValues, kGroups, 128>>(tiles_name(p), p)));
  constexpr std::int64_t kEnd = 4;
  return (wide.turns + kEnd) * 10 < (narrow.turns + kEnd) * 7;
}

template <class T, Values kValues, StageGroups kGroups>
Result<std::unique_ptr<BoundOp>> make_tiles(const QuantisedCall& p) {
  if (p.m <= 32) return make_tiles<T, kValues, kGroups, 32>(p);
  if (p.m <= 64) return make_tiles<T, kValues, kGroups, 64>(p);
  // The ring has no room for stages of 256 rows beside weights of eight bits.
  if constexpr (is_packed(kValues)) {
    if (TRY((takes_wide_tiles<T, kValues, kGroups>(p)))) return make_tiles<T, kValues, kGroups, 256>(p);
  }
  return make_tiles<T, kValues, kGroups, 128>(p);
}

// has_block_tiles() returns whether block_tiles.cu supports the format: integers with float16 scales or pairs for
// groups of 16 or 32 columns, which block_codes.h makes from GGUF's blocks. bind_block_tiles() binds its kernels.
// Precondition of the second: quantised_tiles_serve().
bool has_block_tiles(const QuantisedMatrix& w);
Result<std::unique_ptr<BoundOp>> bind_block_tiles(const QuantisedCall& p);

}  // namespace tessera::cuda::quantised
