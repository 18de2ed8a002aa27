// Dispatches the CPU's kernels on the type of a cache's elements (cache_type.h), and converts numbers to this type.
#pragma once

#include <string_view>
#include <type_traits>
#include <utility>

#include "tessera/base/float8.h"
#include "tessera/ir/storage_type.h"
#include "tessera/ops/cache/cache_type.h"
#include "tessera/ops/cache/int8_cache.h"

namespace tessera {

// Calls f.operator()<Y>() with the storage type of a cache's elements, as dispatch_dtype() does.
template <class F>
auto dispatch_cache_type(ir::DType dtype, std::string_view what, F&& f) -> decltype(f.template operator()<float>()) {
  if (dtype == ir::DType::kFloat8E4M3) return f.template operator()<Float8E4M3>();
  if (is_int8_cache(dtype)) return f.template operator()<Int8Cache>();
  return dispatch_dtype(dtype, what, std::forward<F>(f));
}

// Converts `value` to the number that a cache of type Y stores. Y is not Int8Cache. Caches without scales ignore
// `scale`.
template <class Y>
TESSERA_INLINE Y to_cache(float value, [[maybe_unused]] float scale) {
  if constexpr (std::is_same_v<Y, Float8E4M3>) return from_float<Y>(value / scale);
  return from_float<Y>(value);
}

inline float scale_or_one(const float* scale) { return scale == nullptr ? 1.0F : *scale; }

}  // namespace tessera
