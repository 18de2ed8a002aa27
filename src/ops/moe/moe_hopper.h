// Binds moe_experts with Hopper's own instructions (moe_hopper.cuh). There are four launches: the sort, gate and up,
// down, and the sum over the experts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "tessera/base/status.h"
#include "tessera/ops/moe/moe_experts.h"

namespace tessera {

// Returns whether the current device and this build have the kernel, the types and sizes fit, and experts have at least
// 16 rows on average. With MXFP4 weights, one row on average is enough if the forward has 32 or more pairs of a token
// and an expert. For quantised experts, returns hopper_quantised_serves(p).
bool hopper_serves(const ExpertsProblem& p);

// hopper_scratch_bytes() returns the bytes of bind_hopper()'s workspace. Both functions require hopper_serves(p).
std::size_t hopper_scratch_bytes(const ExpertsProblem& p);
Result<std::unique_ptr<BoundOp>> bind_hopper(const ExpertsProblem& p, std::byte* scratch);

// The functions above call the two functions below for quantised experts (moe_hopper_quantised.cuh).
//
// Returns whether the current device and this build have the kernel, x is bfloat16, the sizes and the formats of both
// matrices fit, and experts have at least one row on average. Precondition: p.quantised.
bool hopper_quantised_serves(const ExpertsProblem& p);
// Binds the kernel. `scratch` has hopper_scratch_bytes(p) bytes. Precondition: hopper_quantised_serves(p).
Result<std::unique_ptr<BoundOp>> bind_hopper_quantised(const ExpertsProblem& p, std::byte* scratch);

}  // namespace tessera
