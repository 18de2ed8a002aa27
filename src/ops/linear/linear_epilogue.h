// Binds linears on CUDA that use cuBLASLt's epilogues. With an epilogue, the matmul also computes the next operator as
// it stores its result.
#pragma once

#include <memory>

#include "tessera/ops/contract/op.h"
#include "tessera/ops/linear/linear_problem.h"

namespace tessera {

// Returns whether the library's epilogues support the sizes and addresses of `p`, which was made from `args`. An
// epilogue needs a linear without a residual.
bool allows_epilogue(const BindArgs& args, const LinearProblem& p);

// Makes the device current and binds like bind_cublaslt(). Returns null if the library has no kernel. In that case the
// linear and the next operator run as separate kernels.
Result<std::unique_ptr<BoundOp>> bind_epilogue(const LinearProblem& p, Device& device);

}  // namespace tessera
