// The forms of rows that kernels of quantised matrices read in place of numbers of the storage type.
#pragma once

#include <type_traits>
#include <variant>

#include "tessera/ops/cuda/fixed_rows.cuh"
#include "tessera/ops/cuda/rounded_rows.cuh"

namespace tessera::cuda {

static_assert(kFixedGroup == kRoundedGroup);
inline constexpr int kConvertedGroup = kFixedGroup;  // columns of a group in either form

using ConvertedRows = std::variant<RoundedRows, FixedRows>;

// Returns the name of an operator that writes Rows, which is RoundedRows or FixedRows.
template <class Rows>
constexpr const char* name_by_form(const char* rounded, const char* fixed) {
  return std::is_same_v<Rows, RoundedRows> ? rounded : fixed;
}

}  // namespace tessera::cuda
