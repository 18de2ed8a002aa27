// Whether a forward's programs may run in halves (compile/halves.h) beside its other instructions.
#pragma once

#include <string>

#include "tessera/piecewise/compiled_forward.h"

namespace tessera {

// Why they may not; empty: they may. Rows of all ranks that were gathered in halves lie in another order than those
// gathered whole: first every rank's first half, then every rank's second. Whatever reads one kind must know it, up to
// where a rank's own rows are scattered back, so that all of it runs in halves, or none.
std::string why_not_in_halves(const CompiledForward& forward);

}  // namespace tessera
