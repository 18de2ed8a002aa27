// Stores the sums of quantised_linear on the CPU.
#pragma once

#include <cstdint>

#include "tessera/ops/quantised/quantised_problem.h"

namespace tessera {

// The columns [first, first + count) of the result.
struct ColumnBlock {
  std::int64_t first;
  std::int64_t count;
};

// Stores the rows [row, row + rows) of a block as T, with bias and residual. Rows of `sums` are `stride` apart. Runs on
// the calling thread.
template <class T>
void store_sums(const QuantisedProblem& p, const float* sums, std::int64_t stride, const ColumnBlock& block,
                std::int64_t row, std::int64_t rows);

}  // namespace tessera
