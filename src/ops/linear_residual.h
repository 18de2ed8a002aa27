// A linear of many rows, the residual behind it and their norm: the library's matmul adds the residual as it stores, so
// that the norm reads one tensor instead of two and the product is never stored alone.
#pragma once

#include "tessera/ops/op.h"

namespace tessera {

// {"linear", "add_rms_norm"}. The sum is rounded once, not twice. Null for float32, in deterministic forwards, and
// below the rows from which on it is faster than the two kernels.
extern const JoinedKernelDef kLinearResidualNormCuda;

}  // namespace tessera
