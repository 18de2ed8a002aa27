// A linear and the GELU behind it, as in the MLPs of vision towers. The library's matmul applies the activation to its
// sums, so the product is not stored and read again.
#pragma once

#include "tessera/ops/contract/op.h"

namespace tessera {

// {"linear", "gelu"} with a bias and the tanh form, which is the only one that cuBLASLt has. The activation takes the
// float32 sum, which separate operators would round first. Null for float32, in deterministic forwards, and where the
// kernels for few rows serve the linear.
extern const JoinedKernelDef kLinearGeluCuda;

}  // namespace tessera
