// CUDA's ways to compute a linear; linear.cu chooses among them at bind time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "tessera/base/status.h"
#include "tessera/ops/linear_problem.h"
#include "tessera/ops/op.h"

namespace tessera {

// Streams the weights once for every four rows (for each row where k is no whole number of 16-byte packs), at the
// speed of memory: what a decode of few requests is bound by. Takes any sizes; a row's bits do not depend on the number
// of rows.
Result<std::unique_ptr<BoundOp>> bind_cuda_few_rows(const LinearProblem& problem);

// What cuBLASLt is recommended to get on Hopper, for its split-k and stream-k kernels.
inline constexpr std::size_t kCublasLtWorkspaceBytes = std::size_t{32} << 20;
// The library's first choice for these sizes, kept for the next bind of the same. Sums in float32, without TF32.
// Precondition: m, n, k >= 1; the workspace has kCublasLtWorkspaceBytes. kUnimplemented where the library has no kernel
// for the sizes.
Result<std::unique_ptr<BoundOp>> bind_cublaslt(const LinearProblem& problem);

}  // namespace tessera
