// Checks whether a forward's programs may run in halves (compile/halves.h) beside its other instructions.
#pragma once

#include <string>

#include "tessera/piecewise/compiled_forward.h"

namespace tessera {

// Returns why the programs may not run in halves; empty: they may. Rows of all ranks that are gathered in halves lie in
// another order than rows that are gathered whole: first every rank's first half, then every rank's second half. Every
// reader must know the order, up to where a rank's own rows are scattered back. So either all of these instructions run
// in halves, or none.
std::string why_not_in_halves(const CompiledForward& forward);

}  // namespace tessera
