// Finds consecutive instructions of a program that one kernel may run (JoinedKernelDef, ops/contract/op.h).
#pragma once

#include <span>

#include "tessera/compile/program.h"
#include "tessera/ir/graph.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

// Adds to each instruction the joins that begin with it. `outputs` are the values that are read outside of the program.
// Instructions are identified by their operators' names, so generated code, which has names of its own, is not joined.
// Binding decides for each bucket whether a join is used.
void add_joins(Program& program, std::span<const ir::ValueId> outputs, std::span<const JoinedKernelDef> joined);

}  // namespace tessera
