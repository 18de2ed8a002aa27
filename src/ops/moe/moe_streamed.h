// moe_experts for the rows of a decode on Hopper (moe_streamed.cuh): gate and up, down with the sum.
#pragma once

#include <cstddef>
#include <memory>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/ops/moe/moe_experts.h"

namespace tessera {

// Whether the current device and this build can, and the types and sizes fit.
bool streamed_serves(const ExpertsProblem& p);

// Of the workspace. Precondition of both: streamed_serves(p).
std::size_t streamed_scratch_bytes(const ExpertsProblem& p);
// `multiprocessors`: of the device.
Result<std::unique_ptr<BoundOp>> bind_streamed_experts(const ExpertsProblem& p, std::byte* scratch,
                                                       std::int64_t multiprocessors);

}  // namespace tessera
