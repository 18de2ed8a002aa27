// The two forms, E4M3 and fixed point, to which rows of x are converted for kernels of quantised matrices.
#pragma once

#include <type_traits>
#include <variant>

#include "tessera/ops/cuda/fixed_rows.cuh"
#include "tessera/ops/cuda/rounded_rows.cuh"

namespace tessera::cuda {

static_assert(kFixedGroup == kRoundedGroup);
inline constexpr int kConvertedGroup = kFixedGroup;  // number of columns of a group in either form

using ConvertedRows = std::variant<RoundedRows, FixedRows>;

// Returns the name of an operator that writes Rows: `rounded` if Rows is RoundedRows, and `fixed` if it is FixedRows.
template <class Rows>
constexpr const char* name_by_form(const char* rounded, const char* fixed) {
  return std::is_same_v<Rows, RoundedRows> ? rounded : fixed;
}

}  // namespace tessera::cuda
