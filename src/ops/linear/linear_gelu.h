// A linear and the GELU behind it, as MLPs of vision towers have them: the library's matmul applies the activation to
// its sums, and the product is never stored and read again.
#pragma once

#include "tessera/ops/contract/op.h"

namespace tessera {

// {"linear", "gelu"} with a bias and the tanh form, the only one that cuBLASLt has. The activation takes the sum in
// float32, which the operators round before. Null for float32, in deterministic forwards, and where kernels of few rows
// serve the linear.
extern const JoinedKernelDef kLinearGeluCuda;

}  // namespace tessera
