// Computes quantised_linear with a packed matrix of GGUF's blocks on the CPU, by integer products. x is rounded to
// eight bits with a scale for each 32 values, as in the kernels of llama.cpp. A row's bits do not depend on the number
// of rows.
#pragma once

#include <cstddef>
#include <memory>

#include "tessera/base/status.h"
#include "tessera/ops/contract/op.h"
#include "tessera/ops/quantised/quantised_problem.h"

namespace tessera {

// Returns whether the kernel supports the product: a type with a packed form, and inputs that may be rounded by block.
bool block_linear_takes(const QuantisedProblem& p);

// Preconditions of block_linear_workspace() and bind_block_linear(): block_linear_takes(p), and p.m >= 1.
std::size_t block_linear_workspace(const QuantisedProblem& p);
Result<std::unique_ptr<BoundOp>> bind_block_linear(const QuantisedProblem& p);

}  // namespace tessera
