// A linear of many rows and the gate behind it, as one kernel (linear_gated.cuh).
#pragma once

#include "tessera/ops/contract/op.h"

namespace tessera {

// For JoinedKernelDef: a linear without residual, then silu_mul or gelu_mul. Null where the device or this build
// cannot, for float32, in deterministic forwards, and below the rows from which on it is faster than the two kernels.
Result<std::unique_ptr<BoundOp>> bind_gated_linear(std::span<const BindArgs> calls);

}  // namespace tessera
