// The CPU's kernels for a linear. linear.cpp chooses among them at bind time.
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

// Computes dot products of rows. Few rows need one pass over w, at the speed of memory. Takes any sizes. A row's bits
// do not depend on the number of rows. Precondition: m, n >= 1.
std::size_t dot_workspace_bytes(const LinearProblem& problem);
Result<std::unique_ptr<BoundOp>> bind_dot(const LinearProblem& problem);
// The most rows for which bind_dot() is faster than oneDNN on this machine, for the problem's dtype and k.
std::int64_t most_rows_for_dot(const LinearProblem& problem);

// A part of the dot kernel, for operators with a loop of their own. It computes the columns [begin, end) of all rows on
// the calling thread. `x` holds the rows [m, k]; float16 rows come as float32, because converting them is slow. `own`
// is scratch of dot_own_floats() floats for the thread. T is float, BFloat16 or Float16. Neither p.x nor p.workspace is
// read.
template <class T>
using DotInput = std::conditional_t<std::is_same_v<T, Float16>, float, T>;
template <class T>
void dot_columns(const LinearProblem& p, const DotInput<T>* x, std::int64_t begin, std::int64_t end, float* own);
std::int64_t dot_own_floats(ir::DType dtype, std::int64_t k);

// Works for any size and floating-point dtype. It converts blocks to float32.
std::size_t blocked_workspace_bytes(const LinearProblem& problem);
Result<std::unique_ptr<BoundOp>> bind_blocked(const LinearProblem& problem);

// oneDNN's kernel, for float32, and for bfloat16 with AVX-512. Precondition: m, n, k >= 1.
bool onednn_takes(ir::DType dtype);
Result<std::size_t> onednn_workspace_bytes(const LinearProblem& problem, bool has_bias, bool has_residual);
Result<std::unique_ptr<BoundOp>> bind_onednn(const LinearProblem& problem);

}  // namespace tessera
