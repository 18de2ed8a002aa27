// Finds the regions of a program that a device's kernel may run whole (ops/contract/region.h).
#pragma once

#include <cstddef>
#include <span>

#include "tessera/compile/program.h"
#include "tessera/ir/graph.h"
#include "tessera/ops/contract/region.h"

namespace tessera {

// Returns how many instructions from `first` on form such a region; 0 if none begins there. The region has as many
// repetitions as follow one another, and nothing else reads its inner values. `outputs` are the program's values that
// others read.
std::size_t region_from(const Program& program, std::span<const ir::ValueId> outputs, std::size_t first,
                        const RegionPattern& pattern);

}  // namespace tessera
