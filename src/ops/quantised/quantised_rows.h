// Converts rows of a quantised matrix to numbers, for the CPU's kernels.
#pragma once

#include <cstdint>

#include "tessera/ops/quantised/quantised_matrix.h"

namespace tessera {

// Writes the rows [first, first + count) of `m`, K numbers each, to y. Every number is (value − zero) · (scale ·
// factor), plus the group's offset if there are offsets. It is computed in float32 and rounded to T: float, BFloat16 or
// Float16. `codes` is scratch of K bytes. Runs on the calling thread.
template <class T>
void quantised_rows(const QuantisedMatrix& m, std::int64_t first, std::int64_t count, T* y, std::uint8_t* codes);

}  // namespace tessera
