// Binds a linear of many rows, the residual after it and the norm of their sum as two kernels. The library's matmul
// adds the residual as it stores its result. So the norm reads one tensor instead of two, and the product alone is
// never stored.
#pragma once

#include "tessera/ops/contract/op.h"

namespace tessera {

// Joins {"linear", "add_rms_norm"}. The sum is rounded once, not twice. bind() returns null in these cases: the type is
// float32; the forward is deterministic; the sizes are so small that the two operators' own kernels are as fast; the
// linear already has a residual; or the library has no kernel. The library needs aligned operands, and k and n that are
// multiples of 8.
extern const JoinedKernelDef kLinearResidualNormCuda;

}  // namespace tessera
