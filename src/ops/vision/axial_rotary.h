// Operators for the rotary position embedding of vision towers. The embedding depends on two coordinates: the image row
// gives the angles of the first half of a head's pairs, and the image column gives the angles of the second half.
#pragma once

#include "tessera/ir/op_decl.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

// axial_table(positions i32[S, 2], inv_freq f32[F]) → f32[S, 4F]
//   A position is an image row and an image column, and f is an element of inv_freq. Columns [0, F) hold cos(row·f) and
//   [F, 2F) hold cos(column·f). The sines follow in the same order. This is the table that the operator rotary takes,
//   with 2F pairs.
extern const ir::OpDecl kAxialTable;
extern const KernelDef kAxialTableCpu;
extern const KernelDef kAxialTableCuda;

// rotate_heads(mut x X[S, N], table f32[S, D]) {heads}
//   Rotates the first `heads` heads of D values in each row of x, in place. Other values do not change. Pair i of a
//   head is (a, b) = (x[i], x[i + D/2]) and becomes (a·cos - b·sin, b·cos + a·sin).
extern const ir::OpDecl kRotateHeads;
extern const KernelDef kRotateHeadsCpu;
extern const KernelDef kRotateHeadsCuda;

}  // namespace tessera
