// Binds a linear and the GELU after it as one matmul, for the MLPs of vision towers. The library's matmul applies the
// activation to its sums, so the product is not stored and read again.
#pragma once

#include "tessera/ops/contract/op.h"

namespace tessera {

// Joins {"linear", "gelu"} if there is a bias and the GELU has the tanh form, the only form that cuBLASLt has. The
// activation is computed from the float32 sum, which separate operators would round first. bind() returns null for
// float32, in deterministic forwards, and if the kernels for few rows compute the linear.
extern const JoinedKernelDef kLinearGeluCuda;

}  // namespace tessera
