// Finds neighbouring instructions of a program that may run as one kernel (JoinedKernelDef, ops/contract/op.h).
#pragma once

#include <span>

#include "tessera/compile/program.h"
#include "tessera/ir/graph.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

// Gives each instruction the joins that begin with it. `outputs` are the program's values that others read.
// Instructions are identified by their operators: generated code has a name that no operator has, and is not joined.
// Binding decides for each bucket whether a join is used.
void add_joins(Program& program, std::span<const ir::ValueId> outputs, std::span<const JoinedKernelDef> joined);

}  // namespace tessera
