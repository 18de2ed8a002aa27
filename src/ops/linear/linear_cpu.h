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

// The kernel of bind_dot() computes dot products of rows, for any sizes. For a few rows it reads w once, at the speed
// of memory. A row's bits do not depend on the number of rows. Precondition: m, n >= 1.
std::size_t dot_workspace_bytes(const LinearProblem& problem);
Result<std::unique_ptr<BoundOp>> bind_dot(const LinearProblem& problem);
// Returns the greatest number of rows for which bind_dot() is faster than oneDNN on this machine, for the problem's
// dtype and k.
std::int64_t most_rows_for_dot(const LinearProblem& problem);

// Runs the dot kernel on the calling thread, for operators that divide their work among threads themselves. The kernel
// computes the columns [begin, end) of y for all rows. `x` is [m, k]. The caller converts float16 rows to float32 once,
// because converting them for every column would be slow. `own` is scratch of dot_own_floats() floats for this thread.
// T is float, BFloat16 or Float16. The function does not read p.x and p.workspace.
template <class T>
using DotInput = std::conditional_t<std::is_same_v<T, Float16>, float, T>;
template <class T>
void dot_columns(const LinearProblem& p, const DotInput<T>* x, std::int64_t begin, std::int64_t end, float* own);
std::int64_t dot_own_floats(ir::DType dtype, std::int64_t k);

// The kernel of bind_blocked() converts blocks of the operands to float32 and multiplies them, for any size and
// floating-point dtype.
std::size_t blocked_workspace_bytes(const LinearProblem& problem);
Result<std::unique_ptr<BoundOp>> bind_blocked(const LinearProblem& problem);

// These functions bind oneDNN's kernel. onednn_takes() returns true for float32, and for bfloat16 on CPUs with AVX-512.
// The other functions have the precondition m, n, k >= 1.
bool onednn_takes(ir::DType dtype);
Result<std::size_t> onednn_workspace_bytes(const LinearProblem& problem, bool has_bias, bool has_residual);
Result<std::unique_ptr<BoundOp>> bind_onednn(const LinearProblem& problem);

}  // namespace tessera
