// Binds moe_experts for one token with 4-bit weights, on Hopper (moe_one_token.cuh). A first kernel computes gate and
// up. A second kernel computes down and the sum over the experts.
#pragma once

#include <cstddef>
#include <memory>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/ops/moe/moe_experts.h"

namespace tessera {

// Returns whether the kernels support the types, the sizes and the current device. hidden must be a multiple of 64. The
// first kernel's ring holds whole rows of `hidden` weights, and must fit into shared memory. This limits hidden to 3200
// on an H200.
bool one_token_serves(const ExpertsProblem& p);

// Returns the bytes of the workspace. Precondition of this and the next function: one_token_serves(p).
std::size_t one_token_scratch_bytes(const ExpertsProblem& p);
// Binds both kernels. `multiprocessors` is the device's number of multiprocessors.
Result<std::unique_ptr<BoundOp>> bind_one_token_experts(const ExpertsProblem& p, std::byte* scratch,
                                                        std::int64_t multiprocessors);

}  // namespace tessera
