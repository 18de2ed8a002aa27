// Binds a linear of many rows and the gate after it as one kernel (linear_gated.cuh).
#pragma once

#include "tessera/ops/contract/op.h"

namespace tessera {

// Binds a JoinedKernelDef's operators: a linear without residual, then silu_mul or gelu_mul. Returns null in these
// cases: the type is float32; the gate is the exact GELU; the kernel does not support the sizes; the rows are so few
// that two kernels are as fast; the forward is deterministic; or the device or this build lacks the kernel.
Result<std::unique_ptr<BoundOp>> bind_gated_linear(std::span<const BindArgs> calls);

// Binds a linear without residual, then adapter_add, then silu_mul or gelu_mul. Returns null also in these cases: the
// workspace of the linear has no room for the changes (linear_gated_parts.cuh); columns of the gate, or of the up
// projection, belong to several modules; or the type is float16, because scale · t could be beyond its range. The
// results have other bits than those of the replaced operators, because the linear's result is not rounded before the
// change is added.
Result<std::unique_ptr<BoundOp>> bind_gated_adapted(std::span<const BindArgs> calls);

}  // namespace tessera
