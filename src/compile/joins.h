// Where a program's neighbouring instructions may run as one kernel (JoinedKernelDef, ops/contract/op.h).
#pragma once

#include <span>

#include "tessera/compile/program.h"
#include "tessera/ir/graph.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

// Gives each instruction the joins that begin with it. `outputs` are the program's values that others read.
// Instructions are known by their operators: code that a compiler generates has a name that no operator has, and is not
// joined. Whether a join serves a bucket is decided when that is bound.
void add_joins(Program& program, std::span<const ir::ValueId> outputs, std::span<const JoinedKernelDef> joined);

}  // namespace tessera
