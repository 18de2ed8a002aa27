// Rows of a matrix by number.
#pragma once

#include "tessera/ir/op_decl.h"
#include "tessera/ops/op.h"

namespace tessera {

// gather_rows(x X[T, H], rows i32[R]) → X[R, H]: row r is x[rows[r]], zeros where rows[r] is outside [0, T).
// Any dtype.
extern const ir::OpDecl kGatherRows;
extern const KernelDef kGatherRowsCpu;
extern const KernelDef kGatherRowsCuda;

// Copies table[rows[i]] to out[i] for every i in [0, count); zeros where rows[i] is outside
// [0, table_rows). Runs on the worker threads.
void copy_rows(const std::byte* table, std::int64_t table_rows, const std::int32_t* rows, std::byte* out,
               std::int64_t count, std::int64_t row_bytes);

}  // namespace tessera
