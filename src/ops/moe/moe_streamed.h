// Binds moe_experts for the rows of a decode step on Hopper (moe_streamed.cuh). One kernel computes gate and up. A
// second kernel computes down and the sum over the experts.
#pragma once

#include <cstddef>
#include <memory>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/ops/moe/moe_experts.h"

namespace tessera {

// Returns whether the current device and this build have the kernels, and the kernels support the types and sizes.
bool streamed_serves(const ExpertsProblem& p);

// Returns the bytes of the workspace. Precondition of this and the next function: streamed_serves(p).
std::size_t streamed_scratch_bytes(const ExpertsProblem& p);
// Binds both kernels. `multiprocessors` is the device's number of multiprocessors.
Result<std::unique_ptr<BoundOp>> bind_streamed_experts(const ExpertsProblem& p, std::byte* scratch,
                                                       std::int64_t multiprocessors);

}  // namespace tessera
