// Finds the regions of a program. A region is a sequence of instructions that a single kernel of the device may run. It
// consists of repetitions of a pattern of instructions (ops/contract/region.h).
#pragma once

#include <cstddef>
#include <span>

#include "tessera/compile/program.h"
#include "tessera/ir/graph.h"
#include "tessera/ops/contract/region.h"

namespace tessera {

// Returns the number of instructions in the region that begins at `first`, or 0 if none begins there. The region
// contains all consecutive repetitions of the pattern. The region's inner values are all values that it makes, except
// those of its last instruction. No instruction outside of the region reads inner values. `outputs` are the values that
// are read outside of the program.
std::size_t region_from(const Program& program, std::span<const ir::ValueId> outputs, std::size_t first,
                        const RegionPattern& pattern);

}  // namespace tessera
