// Lays out the workspace of moe_experts on CUDA, with room for the largest number of tokens that are computed at once
// (most_tokens()).
#pragma once

#include <algorithm>

#include "tessera/device/alignment.h"
#include "tessera/ops/moe/moe_experts.cuh"

namespace tessera::cuda::moe {

inline constexpr std::int64_t kMostTokens = 4096;  // maximum number of tokens computed at a time; it bounds the scratch

inline std::int64_t most_tokens(const ExpertsProblem& p) { return std::min(p.tokens, kMostTokens); }
inline std::int64_t most_pairs(const ExpertsProblem& p) { return most_tokens(p) * p.top_k; }
// Returns an upper bound of the number of tiles if a tile has room for `rows` rows. The bound holds for any choice of
// the router.
inline std::int64_t most_tiles(const ExpertsProblem& p, std::int64_t rows) {
  return std::min(p.experts, most_pairs(p)) + most_pairs(p) / rows;
}

// Byte offsets of the parts of the workspace.
struct Scratch {
  std::size_t size = 0;
  std::size_t activated = 0;  // T[pairs, I]
  std::size_t rows = 0;       // T[pairs, H]
  std::size_t num_tiles = 0;  // the four members from here on are the parts of Order
  std::size_t tiles = 0;
  std::size_t place = 0;
  std::size_t row = 0;

  Order order(std::byte* begin) const {
    return {.num_tiles = reinterpret_cast<int*>(begin + num_tiles),
            .tiles = reinterpret_cast<Tile*>(begin + tiles),
            .place = reinterpret_cast<int*>(begin + place),
            .row = reinterpret_cast<int*>(begin + row)};
  }
};

// Lays out the scratch. Its Order has room for `tiles` tiles. If `tiles` is 0, the scratch has no Order.
inline Scratch lay_out(const ExpertsProblem& p, std::int64_t tiles) {
  Scratch s;
  const auto take = [&](std::int64_t count, std::size_t bytes) {
    const std::size_t at = s.size;
    s.size += align_up(static_cast<std::size_t>(count) * bytes);
    return at;
  };
  const std::size_t element = ir::dtype_size(p.dtype);
  s.activated = take(most_pairs(p) * p.intermediate, element);
  s.rows = take(most_pairs(p) * p.hidden, element);
  if (tiles == 0) return s;
  s.num_tiles = take(1, sizeof(int));
  s.tiles = take(tiles, sizeof(Tile));
  s.place = take(most_pairs(p), sizeof(int));
  s.row = take(most_pairs(p), sizeof(int));
  return s;
}

}  // namespace tessera::cuda::moe
