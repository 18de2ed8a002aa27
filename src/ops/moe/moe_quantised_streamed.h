// Binds the streamed algorithm of moe_experts (moe_streamed.cuh) with quantised experts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "tessera/base/status.h"
#include "tessera/ops/moe/moe_experts.h"

namespace tessera {

// Returns whether the current device has the kernel, and the kernel supports the types, sizes and formats
// (moe_quantised_stream.cuh).
bool quantised_streamed_serves(const ExpertsProblem& p);

// Binds the kernels. Precondition: quantised_streamed_serves(p). `scratch` has streamed_scratch_bytes(p) bytes.
Result<std::unique_ptr<BoundOp>> bind_quantised_streamed(const ExpertsProblem& p, std::byte* scratch,
                                                         std::int64_t multiprocessors);

}  // namespace tessera
