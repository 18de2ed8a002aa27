// moe_experts by Hopper's own instructions (moe_hopper.cuh): order, gate and up, down, sum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "tessera/base/status.h"
#include "tessera/ops/moe/moe_experts.h"

namespace tessera {

// Whether the current device and this build can, the types and sizes fit, and experts have rows enough.
bool hopper_serves(const ExpertsProblem& p);

// Of the workspace. Precondition of both: hopper_serves(p).
std::size_t hopper_scratch_bytes(const ExpertsProblem& p);
Result<std::unique_ptr<BoundOp>> bind_hopper(const ExpertsProblem& p, std::byte* scratch);

}  // namespace tessera
