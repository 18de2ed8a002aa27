// A linear of many rows, the residual behind it and their norm: the library's matmul adds the residual as it stores, so
// that the norm reads one tensor instead of two and the product is never stored alone.
#pragma once

#include "tessera/ops/contract/op.h"

namespace tessera {

// {"linear", "add_rms_norm"}. The sum is rounded once, not twice. Null for float32, in deterministic forwards, below
// the size from which on it is faster than the two kernels, where the linear has a residual of its own, and where the
// library cannot: k and n are no multiples of 8, or an operand is not aligned.
extern const JoinedKernelDef kLinearResidualNormCuda;

}  // namespace tessera
