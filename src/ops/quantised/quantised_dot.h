// Multiplies a few rows by a quantised matrix on the CPU. Every weight is read from memory once, in its quantised form,
// and is converted in registers. Memory bandwidth limits the speed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tessera/ir/type.h"
#include "tessera/ops/quantised/quantised_matrix.h"

namespace tessera {

// Returns whether this machine and the kernel support the matrix. The machine needs AVX-512, and for bfloat16 also the
// instructions of AVX512_BF16. Rows of the matrix must have a multiple of 32 values. A group must be 16 values (except
// with int4), a multiple of 32 values, or a whole row. The matrix must have no GGUF blocks, no offsets and no operand
// `groups`.
bool quantised_dot_takes(const QuantisedMatrix& m, ir::DType dtype);

// quantised_dot_x_bytes() returns the size of x in the kernel's form, in bytes. quantised_dot_prepare() converts x
// [rows, cols] of `dtype` to that form and writes it to `to`.
std::size_t quantised_dot_x_bytes(std::int64_t rows, std::int64_t cols, ir::DType dtype);
void quantised_dot_prepare(const std::byte* x, std::int64_t rows, std::int64_t cols, ir::DType dtype, std::byte* to);

// Computes sums[rows, count] = x · wᵀ for the rows [first, first + count) of w. `x` is in the kernel's form. The order
// of a sum depends on the matrix alone: 16 lanes add the products of a group, then the lanes are multiplied by the
// group's scale and added to the total, group after group. Precondition: quantised_dot_takes(). Runs on the calling
// thread.
void quantised_dot(const QuantisedMatrix& m, const std::byte* x, std::int64_t rows, ir::DType dtype, std::int64_t first,
                   std::int64_t count, float* sums);

}  // namespace tessera
