// Searches for the best scales of 4-bit values, given the importance of each number.
#pragma once

#include <span>

#include "tessera/model/rounding/quantise_values.h"

namespace tessera {

// Replaces the scale of each block of a row by the best of several candidates: the one with the least weighted squared
// error Σ importance · (x − value)². The given scale is a candidate, so the error never grows. A scale stays positive.
// A scale of E2M1 values stays a number that E4M3 can represent. The results are equal on every CPU.
//
// Preconditions: block_scales() set `scales`. The values are int4 or E2M1. block_rows is 1, and block_cols is a
// multiple of 16. `x` and `importance` have block_cols elements for each scale. All elements are finite, and all
// importances are positive.
void search_scales(const Rounding& rounding, float factor, std::span<const float> x, std::span<const float> importance,
                   std::span<float> scales);

}  // namespace tessera
