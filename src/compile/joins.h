// Finds consecutive instructions of a program that one kernel may run (JoinedKernelDef, ops/contract/op.h).
#pragma once

#include <span>

#include "tessera/compile/program.h"
#include "tessera/ir/graph.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

// Adds to each instruction the joined kernels that can replace it together with the instructions after it. `outputs`
// are the values that are read outside of the program. Operators are matched by name, so generated code, whose
// operators have names of their own, is not joined. Binding decides for each bucket whether a joined kernel runs.
void add_joins(Program& program, std::span<const ir::ValueId> outputs, std::span<const JoinedKernelDef> joined);

}  // namespace tessera
