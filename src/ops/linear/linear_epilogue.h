// Linears of CUDA whose matmul does, as it stores, what the operator behind them would: the library's epilogues.
#pragma once

#include <memory>

#include "tessera/ops/contract/op.h"
#include "tessera/ops/linear/linear_problem.h"

namespace tessera {

// Whether the library's epilogues take the sizes and addresses of `p`, made of `args`: a linear without a residual.
bool allows_epilogue(const BindArgs& args, const LinearProblem& p);

// As bind_cublaslt() on the device made current, but null where the library has no kernel: then each operator runs by
// itself.
Result<std::unique_ptr<BoundOp>> bind_epilogue(const LinearProblem& p, Device& device);

}  // namespace tessera
