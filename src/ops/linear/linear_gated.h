// Binds a linear of many rows and the gate after it as one kernel (linear_gated.cuh).
#pragma once

#include "tessera/ops/contract/op.h"

namespace tessera {

// Binds a JoinedKernelDef's operators: a linear without residual, then silu_mul or gelu_mul. Returns null in these
// cases: the type is float32; the gate is the exact GELU; the kernel does not support the sizes; the rows are so few
// that two kernels are as fast; the forward is deterministic; or the device or this build lacks the kernel.
Result<std::unique_ptr<BoundOp>> bind_gated_linear(std::span<const BindArgs> calls);

}  // namespace tessera
