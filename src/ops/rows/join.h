// The reverse of split: matrices side by side.
#pragma once

#include "tessera/ir/op_decl.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

// Operands of one join, at most.
inline constexpr std::size_t kMaxJoined = 8;

// join(x0 X[T, n₀], x1 X[T, n₁], …) → X[T, n₀ + n₁ + …]: the rows of each, one behind the other. Any dtype.
extern const ir::OpDecl kJoin;
extern const KernelDef kJoinCpu;
extern const KernelDef kJoinCuda;

}  // namespace tessera
