// The CPU's ways to compute a linear; linear.cpp chooses among them at bind time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "tessera/base/float16.h"
#include "tessera/base/status.h"
#include "tessera/ops/contract/op.h"
#include "tessera/ops/linear/linear_problem.h"

namespace tessera {

// Dot products of rows: few rows in one pass over w, at the speed of memory. Takes any sizes; a row's bits do not
// depend on the number of rows. Precondition: m, n >= 1.
std::size_t dot_workspace_bytes(const LinearProblem& problem);
Result<std::unique_ptr<BoundOp>> bind_dot(const LinearProblem& problem);
// Rows up to which it is faster on this machine than oneDNN, for its dtype and k.
std::int64_t most_rows_for_dot(const LinearProblem& problem);

// A part of that for operators with a loop of their own: columns [begin, end) of all rows, on the calling thread.
// `x`: the rows [m, k], float16 as float32, as converting it is not cheap. `own`: dot_own_floats() of the thread.
// Instantiated for float, BFloat16 and Float16. Neither p.x nor p.workspace is read.
template <class T>
using DotInput = std::conditional_t<std::is_same_v<T, Float16>, float, T>;
template <class T>
void dot_columns(const LinearProblem& p, const DotInput<T>* x, std::int64_t begin, std::int64_t end, float* own);
std::int64_t dot_own_floats(ir::DType dtype, std::int64_t k);

// For any size and floating-point dtype: blocks converted to float32.
std::size_t blocked_workspace_bytes(const LinearProblem& problem);
Result<std::unique_ptr<BoundOp>> bind_blocked(const LinearProblem& problem);

// oneDNN: float32, and bfloat16 with AVX-512. Precondition: m, n, k >= 1.
bool onednn_takes(ir::DType dtype);
Result<std::size_t> onednn_workspace_bytes(const LinearProblem& problem, bool has_bias, bool has_residual);
Result<std::unique_ptr<BoundOp>> bind_onednn(const LinearProblem& problem);

}  // namespace tessera
