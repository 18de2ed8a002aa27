// Helpers for tests of row-wise operators. They check that rows do not affect each other.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "tessera/ops/contract/op_test_util.h"

namespace tessera::testing {

inline constexpr ir::DType kFloatingDTypes[] = {ir::DType::kFloat32, ir::DType::kBFloat16, ir::DType::kFloat16};

// Returns the value of `dtype` that is nearest to x.
inline double rounded_to(ir::DType dtype, double x) {
  const float value = static_cast<float>(x);
  if (dtype == ir::DType::kBFloat16) return static_cast<double>(to_float(from_float<BFloat16>(value)));
  if (dtype == ir::DType::kFloat16) return static_cast<double>(to_float(from_float<Float16>(value)));
  return static_cast<double>(value);
}

inline std::size_t row_bytes(const HostTensor& t) { return t.bytes.size() / static_cast<std::size_t>(t.dims[0]); }

// Returns rows [begin, end) of the first dimension.
inline HostTensor slice_rows(const HostTensor& t, std::int64_t begin, std::int64_t end) {
  HostTensor part{t.dtype, t.dims, {}};
  part.dims[0] = end - begin;
  const std::ptrdiff_t row = static_cast<std::ptrdiff_t>(row_bytes(t));
  part.bytes.assign(t.bytes.begin() + begin * row, t.bytes.begin() + end * row);
  return part;
}

// Checks, to the bit, two facts that padding and batching rely on. Filling the last row's operands with bytes of 0xff
// (NaN, or -1) changes no other row. A row computed alone equals the row computed in a batch. `row_wise` lists the
// indices of the operands that have one row for each row of the results. Precondition: at least 3 rows.
inline void expect_rows_independent(const ir::OpDecl& decl, const KernelDef& kernel,
                                    const std::vector<HostTensor>& operands, const std::vector<std::size_t>& row_wise,
                                    const ir::Attributes& attributes = {}) {
  const OpOutcome all = run_op(decl, kernel, operands, attributes);
  std::vector<HostTensor> poisoned = operands;
  std::vector<HostTensor> alone = operands;
  for (const std::size_t i : row_wise) {
    std::fill(poisoned[i].bytes.end() - static_cast<std::ptrdiff_t>(row_bytes(operands[i])), poisoned[i].bytes.end(),
              std::byte{0xff});
    alone[i] = slice_rows(operands[i], 1, 2);
  }
  const OpOutcome with_poison = run_op(decl, kernel, poisoned, attributes);
  const OpOutcome single = run_op(decl, kernel, alone, attributes);
  for (std::size_t i = 0; i < all.results.size(); ++i) {
    const HostTensor& whole = all.results[i];
    if (whole.dims.empty()) continue;
    const std::int64_t real = whole.dims[0] - 1;
    EXPECT_EQ(slice_rows(whole, 0, real).bytes, slice_rows(with_poison.results[i], 0, real).bytes)
        << decl.name << ": NaN in the last row changed another one, result " << i;
    EXPECT_EQ(slice_rows(whole, 1, 2).bytes, single.results[i].bytes)
        << decl.name << ": row 1 differs when it is computed alone, result " << i;
  }
}

// For each number in `counts`, runs the operator on that many neighbouring rows of the operands. Checks that the
// results are bitwise equal to the results of the same rows in a run on all rows. Depending on the number, the
// neighbouring rows lie at the start, in the middle or at the end of the operands. A row is therefore computed alone or
// among others, and at different addresses. `operands` must have at least as many rows as the greatest count.
inline void expect_any_row_count(const ir::OpDecl& decl, const KernelDef& kernel,
                                 const std::vector<HostTensor>& operands, const std::vector<std::size_t>& row_wise,
                                 const std::vector<std::int64_t>& counts, const ir::Attributes& attributes = {},
                                 const ForwardContext& context = {}) {
  const OpOutcome all = run_op(decl, kernel, operands, attributes, context);
  const std::int64_t rows = operands[row_wise[0]].dims[0];
  for (const std::int64_t count : counts) {
    const std::int64_t first = (rows - count) * (count % 3) / 2;
    std::vector<HostTensor> some = operands;
    for (const std::size_t i : row_wise) some[i] = slice_rows(operands[i], first, first + count);
    const OpOutcome part = run_op(decl, kernel, some, attributes, context);
    for (std::size_t i = 0; i < all.results.size(); ++i) {
      if (all.results[i].dims.empty()) continue;
      EXPECT_EQ(slice_rows(all.results[i], first, first + count).bytes, part.results[i].bytes)
          << decl.name << " " << ir::dtype_name(operands[0].dtype) << ": rows " << first << " … " << first + count - 1
          << " of " << rows << ", result " << i;
    }
  }
}

}  // namespace tessera::testing
