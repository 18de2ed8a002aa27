// Joins the rows of several matrices to longer rows. It is the reverse of split.
#pragma once

#include "tessera/ir/op_decl.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

// The maximum number of operands of one join.
inline constexpr std::size_t kMaxJoined = 8;

// join(x0 X[T, n₀], x1 X[T, n₁], …) → X[T, n₀ + n₁ + …]: row t holds row t of each operand, one after the other. Any
// dtype.
extern const ir::OpDecl kJoin;
extern const KernelDef kJoinCpu;
extern const KernelDef kJoinCuda;

}  // namespace tessera
