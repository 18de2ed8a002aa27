// The factors of a rotary_table node: one for all rows, and one that grows with the position. Kernels on the CPU and on
// CUDA use this code.
#pragma once

#include <cmath>
#include <cstdint>

#include "tessera/ops/contract/op.h"

namespace tessera {

struct RowScale {
  float scale = 1;
  double growth = 0;
  std::int64_t length = 1;

  // Returns the factor of the row of position p: scale · (1 + growth · log(1 + ⌊p / length⌋)).
  constexpr float at(std::int32_t position) const {
    if (growth == 0) return scale;
    const std::int64_t lengths = position / length;  // whole lengths before the position
    return static_cast<float>(static_cast<double>(scale) * (1 + growth * std::log1p(static_cast<double>(lengths))));
  }
};

// Reads the factors of a rotary_table node.
inline RowScale row_scale(const ir::Node& node) {
  return {.scale = static_cast<float>(node.attribute_or("scale", 1.0)),
          .growth = node.attribute_or("growth", 0.0),
          .length = node.attribute_or("growth_length", std::int64_t{1})};
}

}  // namespace tessera
