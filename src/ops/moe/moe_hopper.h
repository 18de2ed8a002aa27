// Binds moe_experts with Hopper's own instructions (moe_hopper.cuh). There are four launches: sort, gate and up, down,
// sum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "tessera/base/status.h"
#include "tessera/ops/moe/moe_experts.h"

namespace tessera {

// Returns whether the current device and this build have the kernel, the types and sizes fit, and experts have enough
// rows.
bool hopper_serves(const ExpertsProblem& p);

// Returns the bytes of the workspace that bind_hopper() needs. Precondition of both functions: hopper_serves(p).
std::size_t hopper_scratch_bytes(const ExpertsProblem& p);
Result<std::unique_ptr<BoundOp>> bind_hopper(const ExpertsProblem& p, std::byte* scratch);

// The functions above call these functions for quantised experts (moe_hopper_quantised.cuh), whose formats must fit,
// too.
bool hopper_quantised_serves(const ExpertsProblem& p);
Result<std::unique_ptr<BoundOp>> bind_hopper_quantised(const ExpertsProblem& p, std::byte* scratch);

}  // namespace tessera
