// The factors of a rotary_table node: one for all rows, and one that grows with the position. Kernels on the CPU and on
// CUDA use this code.
#pragma once

#include <cstdint>

#include "tessera/ops/contract/op.h"

namespace tessera {

// The row of position p is multiplied by scale · (1 + growth · log(1 + ⌊p / length⌋)).
struct RowScale {
  float scale = 1;
  double growth = 0;
  std::int64_t length = 1;
};

// Reads the factors of a rotary_table node.
inline RowScale row_scale(const ir::Node& node) {
  return {.scale = static_cast<float>(node.attribute_or("scale", 1.0)),
          .growth = node.attribute_or("growth", 0.0),
          .length = node.attribute_or("growth_length", std::int64_t{1})};
}

}  // namespace tessera
