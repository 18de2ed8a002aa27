// Finds consecutive instructions of a program that one kernel may run (JoinedKernelDef, ops/contract/op.h).
#pragma once

#include <span>

#include "tessera/compile/program.h"
#include "tessera/ir/graph.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

// Adds to each instruction the joined kernels that can replace it and one or more instructions directly after it.
// `outputs` are the values that are read outside of the program. Operators are compared by name. Generated code is not
// joined, because its operators have other names. add_joins() only lists the joined kernels. Whether one of them runs
// is decided when the program is bound for a bucket.
void add_joins(Program& program, std::span<const ir::ValueId> outputs, std::span<const JoinedKernelDef> joined);

}  // namespace tessera
