// Binds a linear of many rows and the gate after it as one kernel (linear_gated.cuh).
#pragma once

#include "tessera/ops/contract/op.h"

namespace tessera {

// Binds a JoinedKernelDef's operators: a linear without residual, then silu_mul or gelu_mul. Returns null if the device
// or this build lacks the kernel, for float32, for sizes that the kernel does not support, for the exact GELU, in
// deterministic forwards, and if there are too few rows to be faster than two kernels.
Result<std::unique_ptr<BoundOp>> bind_gated_linear(std::span<const BindArgs> calls);

}  // namespace tessera
