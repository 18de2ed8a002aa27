// Binds a linear of many rows and the gate after it as one kernel (linear_gated.cuh).
#pragma once

#include "tessera/ops/contract/op.h"

namespace tessera {

// Binds a JoinedKernelDef's operators: a linear without residual, then silu_mul or gelu_mul. Returns null for float32,
// for the exact GELU, for sizes that the kernel does not support, for so few rows that two kernels are as fast, in
// deterministic forwards, and if the device or this build lacks the kernel.
Result<std::unique_ptr<BoundOp>> bind_gated_linear(std::span<const BindArgs> calls);

}  // namespace tessera
