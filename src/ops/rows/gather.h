// Copies rows of a matrix by row number.
#pragma once

#include "tessera/ir/op_decl.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

// gather_rows(x X[T, H], rows i32[R]) → X[R, H]: row r is x[rows[r]], or zeros if rows[r] is outside [0, T). Any dtype.
extern const ir::OpDecl kGatherRows;
extern const KernelDef kGatherRowsCpu;
extern const KernelDef kGatherRowsCuda;

// The arguments of the kernel that copies rows for the operators gather_rows and embedding. For every i in [0, count),
// row out[i] is a copy of given[given_rows[i]] if given_rows[i] is not negative, and of table[rows[i] - first_row]
// otherwise. A row number outside `given` or `table` gives a row of zeros.
struct RowCopy {
  const std::byte* table = nullptr;          // [table_rows, row_bytes]
  const std::int32_t* rows = nullptr;        // [count]
  const std::byte* given = nullptr;          // [num_given, given_row_bytes]; the first row_bytes of a row are copied
  const std::int32_t* given_rows = nullptr;  // [count]; null: there are no given rows
  std::byte* out = nullptr;                  // [count, row_bytes]
  std::int64_t first_row = 0;                // the number of the table's first row
  std::int64_t table_rows = 0;
  std::int64_t num_given = 0;
  std::int64_t count = 0;
  std::int64_t row_bytes = 0;
  std::int64_t given_row_bytes = 0;  // a multiple of row_bytes
};

// Makes the operator that copies rows on the CPU. `name`, the operator's name in errors, is a string literal.
std::unique_ptr<BoundOp> make_cpu_row_copy(const char* name, const RowCopy& copy);

}  // namespace tessera
