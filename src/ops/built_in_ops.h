// Lists the engine's built-in operators: their declarations for graphs, and their kernels on the CPU. A program's
// registry (runner/capture/registry.h) starts with these lists.
#pragma once

#include "tessera/ir/op_decl.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

// Both tables are immutable and thread-safe.
const ir::OpTable& built_in_ops();
const KernelTable& cpu_kernels();  // one kernel for every operator whose declaration has Execution::kKernel

}  // namespace tessera
