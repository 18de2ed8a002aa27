// Checks whether a forward's programs may run some instructions in halves (compile/halves.h) while others run whole.
#pragma once

#include <string>

#include "tessera/piecewise/compiled_forward.h"

namespace tessera {

// Returns the reason why the programs cannot run in halves, or "" if they can. One reason is that no program has a
// range that can run in halves. The other reason is the order of gathered rows. Gathering in halves puts first every
// rank's first half, and then every rank's second half. Gathering at once keeps the rows of each rank together. All
// instructions that use the gathered rows, until the rows are scattered back to their ranks, must expect the same
// order. So either all of these instructions run in halves, or none does.
std::string why_not_in_halves(const CompiledForward& forward);

}  // namespace tessera
