// Checks whether a forward's programs may run some instructions in halves (compile/halves.h) while others run whole.
#pragma once

#include <string>

#include "tessera/piecewise/compiled_forward.h"

namespace tessera {

// Returns the reason why the programs may not run in halves, or "" if they may. Gathering in halves puts the rows of
// all ranks in another order than gathering them at once: first every rank's first half, then every rank's second half.
// All instructions that use the gathered rows, until the rows are scattered back to their ranks, must expect the same
// order. So either all of these instructions run in halves, or none does.
std::string why_not_in_halves(const CompiledForward& forward);

}  // namespace tessera
