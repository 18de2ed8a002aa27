// Checks whether a forward's programs may run some instructions in halves (compile/halves.h) while others run whole.
#pragma once

#include <string>

#include "tessera/piecewise/compiled_forward.h"

namespace tessera {

// Returns the reason why the programs cannot run in halves, or "" if they can. The first possible reason is that no
// program has a range of instructions that can run in halves. The second possible reason is that only some of the
// instructions on gathered rows can run in halves. A gather in halves returns the first halves of all ranks, and then
// their second halves. A gather of all rows at once keeps the rows of each rank together. All instructions from the
// gather to the scatter must expect the same order of rows, so either all of them run in halves, or none does.
std::string why_not_in_halves(const CompiledForward& forward);

}  // namespace tessera
