// The C++ types in which elements of floating-point dtypes are stored.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>

#include "tessera/base/float16.h"
#include "tessera/base/status.h"
#include "tessera/ir/type.h"

namespace tessera {

template <class T>
inline constexpr ir::DType kDTypeOf = std::is_same_v<T, float>      ? ir::DType::kFloat32
                                      : std::is_same_v<T, BFloat16> ? ir::DType::kBFloat16
                                                                    : ir::DType::kFloat16;

// Calls f.operator()<T>(), where T is the type that stores elements of `dtype`, a floating-point dtype. Returns the
// call's result, which is a Status or a Result. Returns kUnimplemented for any other dtype. The message begins with
// `what`.
//   return dispatch_dtype(x.dtype, "rms_norm", [&]<class T>() -> Result<std::unique_ptr<BoundOp>> { … });
template <class F>
auto dispatch_dtype(ir::DType dtype, std::string_view what, F&& f) -> decltype(f.template operator()<float>()) {
  switch (dtype) {
    case ir::DType::kFloat32: return f.template operator()<float>();
    case ir::DType::kBFloat16: return f.template operator()<BFloat16>();
    case ir::DType::kFloat16: return f.template operator()<Float16>();
    default: break;
  }
  return unimplemented(std::string(what) + " takes f32, bf16 and f16, not " + std::string(ir::dtype_name(dtype)));
}

}  // namespace tessera
