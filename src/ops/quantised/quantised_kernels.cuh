// CUDA's kernels for a quantised_linear. quantised_linear.cu chooses among them at bind time.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/ops/contract/op.h"
#include "tessera/ops/quantised/quantised_problem.h"

namespace tessera {

// Computes each element of y by one warp, from numbers in float32. Takes every format, type and size. A row's bits do
// not depend on the number of rows.
Result<std::unique_ptr<BoundOp>> bind_quantised_plain(const QuantisedProblem& problem);

// Whether the streamed kernel serves the problem: up to 16 rows of a 16-bit type, whole tiles, and a common format
// (quantised_streamed.cuh). It needs Hopper. The order of sums does not depend on the number of rows.
bool quantised_streamed_serves(const QuantisedProblem& problem);
Result<std::unique_ptr<BoundOp>> bind_quantised_streamed(const QuantisedProblem& problem);
// Binds a JoinedKernelDef's operators: a quantised_linear without residual, then silu_mul or gelu_mul. Null where the
// kernel does not serve them, and in deterministic forwards.
Result<std::unique_ptr<BoundOp>> bind_quantised_gated(std::span<const BindArgs> calls);

// Whether the kernel of tiles serves the problem: any number of rows of a 16-bit type, and a common format
// (quantised_tiles.cuh). It needs Hopper. The order of sums does not depend on the number of rows where the forward is
// deterministic.
bool quantised_tiles_serve(const QuantisedProblem& problem);
Result<std::unique_ptr<BoundOp>> bind_quantised_tiles(const QuantisedProblem& problem, bool deterministic);
// Binds the same operators as bind_quantised_gated().
Result<std::unique_ptr<BoundOp>> bind_quantised_tiles_gated(std::span<const BindArgs> calls);

// Whether the kernel of rounded rows serves the problem: values in E4M3, made for inputs that are rounded by groups or
// rows, and 16-bit types (quantised_fp8.cuh). It needs Hopper, and a workspace. The order of sums is as in the kernel
// of tiles. Forwards of at most kMostUnroundedRows rows that are not deterministic are faster without it.
inline constexpr std::int64_t kMostUnroundedRows = 16;
bool quantised_fp8_serves(const QuantisedProblem& problem);
std::size_t quantised_fp8_workspace(const QuantisedProblem& problem);  // in bytes
Result<std::unique_ptr<BoundOp>> bind_quantised_fp8(const QuantisedProblem& problem, bool deterministic);
// Binds the same operators as bind_quantised_gated().
Result<std::unique_ptr<BoundOp>> bind_quantised_fp8_gated(std::span<const BindArgs> calls);

// Our kernels that also compute the gate after the quantised_linear.
const std::vector<JoinedKernelDef>& joined_quantised_kernels();

}  // namespace tessera
