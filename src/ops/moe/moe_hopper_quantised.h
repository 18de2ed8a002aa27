// Binds moe_experts with quantised experts to kernels that use Hopper's own instructions (moe_hopper_quantised.cuh).
#pragma once

#include <cstddef>
#include <memory>

#include "tessera/base/status.h"
#include "tessera/ops/moe/moe_experts.h"

namespace tessera {

// Returns whether the current device and this build have the kernel, the types, sizes and formats fit, and experts have
// enough rows.
bool hopper_quantised_serves(const ExpertsProblem& p);

// Binds the kernels. Precondition: hopper_quantised_serves(p). The scratch has hopper_scratch_bytes() (moe_hopper.h).
Result<std::unique_ptr<BoundOp>> bind_hopper_quantised(const ExpertsProblem& p, std::byte* scratch);

}  // namespace tessera
