// Where a program's neighbouring instructions may run as one kernel (JoinedKernelDef, ops/op.h).
#pragma once

#include "tessera/compile/program.h"
#include "tessera/ir/graph.h"
#include "tessera/ops/op.h"

namespace tessera {

// Gives each instruction the joins that begin with it. `program` is `piece` instruction by instruction, and its values
// are the piece's. Whether a join serves a bucket is decided when that is bound.
void add_joins(Program& program, const ir::Graph& piece, std::span<const JoinedKernelDef> joined);

}  // namespace tessera
