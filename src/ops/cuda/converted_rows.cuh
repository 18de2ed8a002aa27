// The two forms to which rows of an input x are converted for kernels that multiply x by a quantised matrix: E4M3
// (rounded_rows.cuh) and fixed point (fixed_rows.cuh).
#pragma once

#include <memory>
#include <type_traits>
#include <variant>

#include "tessera/ir/type.h"
#include "tessera/ops/contract/op.h"
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

// Returns make<T>(rows), where T is the device type of `dtype`, and `rows` is the RoundedRows or FixedRows in `to`.
// Returns null for float32.
template <class F>
std::unique_ptr<BoundOp> make_in_form(ir::DType dtype, const ConvertedRows& to, const F& make) {
  return std::visit(
      [&](const auto& rows) -> std::unique_ptr<BoundOp> {
        switch (dtype) {
          case ir::DType::kBFloat16: return make.template operator()<__nv_bfloat16>(rows);
          case ir::DType::kFloat16: return make.template operator()<__half>(rows);
          default: return nullptr;
        }
      },
      to);
}

}  // namespace tessera::cuda
