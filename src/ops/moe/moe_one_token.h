// moe_experts of one token whose weights have 4 bits, on Hopper (moe_one_token.cuh): gate and up, down with the sum.
#pragma once

#include <cstddef>
#include <memory>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/ops/moe/moe_experts.h"

namespace tessera {

// Whether types, sizes and the current device fit: hidden is a multiple of 64, and a ring of whole rows of it fits into
// shared memory, which ends at 3200 on an H200.
bool one_token_serves(const ExpertsProblem& p);

// Of the workspace. Precondition of both: one_token_serves(p).
std::size_t one_token_scratch_bytes(const ExpertsProblem& p);
// `multiprocessors`: of the device.
Result<std::unique_ptr<BoundOp>> bind_one_token_experts(const ExpertsProblem& p, std::byte* scratch,
                                                        std::int64_t multiprocessors);

}  // namespace tessera
