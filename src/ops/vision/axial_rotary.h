// Rotary position embedding by two coordinates, as vision towers have it: the first half of a head's pairs turns by the
// row of the image, the second half by the column.
#pragma once

#include "tessera/ir/op_decl.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

// axial_table(positions i32[S, 2], inv_freq f32[F]) → f32[S, 4F]
//   columns [0, F): cos(row·f), [F, 2F): cos(column·f), and so the sines: the table that `rotary` takes, of 2F pairs.
extern const ir::OpDecl kAxialTable;
extern const KernelDef kAxialTableCpu;
extern const KernelDef kAxialTableCuda;

// rotate_heads(mut x X[S, N], table f32[S, D]) {heads}
//   Turns the first `heads` heads of D values in each row of x, in place; the other values stay. Pair i of a head is
//   (x[i], x[i + D/2]) and becomes (a·cos - b·sin, b·cos + a·sin).
extern const ir::OpDecl kRotateHeads;
extern const KernelDef kRotateHeadsCpu;
extern const KernelDef kRotateHeadsCuda;

}  // namespace tessera
