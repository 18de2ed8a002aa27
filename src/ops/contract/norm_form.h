// The form of an RMS norm. The form says which formula of norm.h applies.
#pragma once

#include <cstdint>

#include "tessera/ir/graph.h"

namespace tessera {

enum class NormForm : std::uint8_t { kRoundFirst, kRoundOnce, kUnitOffset };

// Reads the form from the node's attributes unit_offset and round_once. A node with unit_offset is treated as if it
// also had round_once.
inline NormForm norm_form(const ir::Node& node) {
  if (node.attribute_or("unit_offset", false)) return NormForm::kUnitOffset;
  return node.attribute_or("round_once", false) ? NormForm::kRoundOnce : NormForm::kRoundFirst;
}

}  // namespace tessera
