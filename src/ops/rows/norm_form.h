// How an RMS norm's weight multiplies: which of the formulas of norm.h.
#pragma once

#include <cstdint>

#include "tessera/ir/graph.h"

namespace tessera {

enum class NormForm : std::uint8_t { kRoundFirst, kRoundOnce, kUnitOffset };

// As the node's attributes unit_offset and round_once say; the first implies the second.
NormForm norm_form(const ir::Node& node);

}  // namespace tessera
