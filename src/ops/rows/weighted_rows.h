// Computes weighted sums of a table's rows. One use is interpolation between learned position embeddings of a square
// grid.
#pragma once

#include "tessera/ir/op_decl.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

// weighted_rows(table X[V, H], rows i32[S, K], weights f32[S, K]) → X[S, H]
//   out[s] = Σ_k X(table[rows[s, k]] · X(weights[s, k])), where X(…) rounds to type X. The sum is added in float32 in
//   the order of k and rounded at the end. A row outside the table adds nothing.
extern const ir::OpDecl kWeightedRows;
extern const KernelDef kWeightedRowsCpu;
extern const KernelDef kWeightedRowsCuda;

}  // namespace tessera
