// Computes quantised_linear with cuBLASLt for rows of x that are rounded to E4M3 (cuda/rounded_rows.cuh). The library's
// products of E4M3 take a scale for each 128 columns of a row of x and for each 128 by 128 block of w. The library is
// faster than rounded_many.cuh, but it computes no gate, and its sums may depend on the number of rows.
#pragma once

#include <cstdint>
#include <memory>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/ops/contract/op.h"
#include "tessera/ops/quantised/quantised_problem.h"

namespace tessera {

// Returns whether the library supports the product. The number of rows must be above 64 and a multiple of four. The
// matrix must have one scale for each block of 128 by 128. n must be a multiple of 16, and k a multiple of 512.
bool rounded_library_serves(const QuantisedProblem& p);

// Rows of x in the form that the library reads: [m, k] bytes, and scales [k / 128, m].
struct LibraryRows {
  const std::uint8_t* values;
  const float* scales;
};

// Binds the product of `rows` and call.w. Returns null if the library offers no algorithm. Precondition:
// rounded_library_serves(call).
Result<std::unique_ptr<BoundOp>> bind_rounded_library(const QuantisedProblem& call, const LibraryRows& rows,
                                                      Device& device);

}  // namespace tessera
