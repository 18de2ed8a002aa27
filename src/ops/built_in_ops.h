// The operators of this engine as an explicit list: their declarations for graphs, and the CPU's kernels. A program's
// registry (runner/capture/registry.h) starts with these.
#pragma once

#include "tessera/ir/op_decl.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

// Both are immutable and thread-safe.
const ir::OpTable& built_in_ops();
const KernelTable& cpu_kernels();  // one for every operator that is not a view

}  // namespace tessera
