// The explicit list of operators: declarations for graphs, kernels for each device.
#pragma once

#include "tessera/ir/op_decl.h"
#include "tessera/ops/op.h"

namespace tessera {

// All operators of this engine. Built once, immutable, thread-safe.
const ir::OpTable& op_table();
// The CPU's kernels; one for every operator that is not a view.
const KernelTable& cpu_kernels();

}  // namespace tessera
