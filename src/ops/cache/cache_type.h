// The types in which a cache holds keys and values. A cache of f32, bf16 or f16 holds them unchanged. A cache of f8e4m3
// (E4M3) holds them divided by a scale. A cache of u8 holds int8 codes and one scale for every 32 codes (int8_cache.h).
//
// An operator with a cache of f8e4m3 has two more operands after all others, k_scale f32[1] and v_scale f32[1]. Both
// scales are finite and above 0. Operators with a cache of another type do not have these operands. The stored number
// is key / k_scale or value / v_scale, rounded to nearest even and limited to ±448. NaN stays NaN. Kernels that read
// the cache multiply by the scale.
#pragma once

#include <cstddef>
#include <string_view>

#include "tessera/ir/op_decl.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

bool is_cache_type(ir::DType dtype);
constexpr bool has_cache_scales(ir::DType dtype) { return dtype == ir::DType::kFloat8E4M3; }
constexpr bool is_int8_cache(ir::DType dtype) { return dtype == ir::DType::kUInt8; }
// The accepted types of a cache, for error messages.
inline constexpr std::string_view kCacheTypes = "f32, bf16, f16, f8e4m3 or u8 (int8)";
// Returns the name that reports give a cache of this type: "int8" for u8, the type's own name for others.
std::string_view cache_type_name(ir::DType cache);

// Returns the last dimension of a cache [pages, page_size, KV heads, columns] for heads of `head_dim` elements. This
// dimension is head_dim itself, except in a cache of u8. There the columns include the bytes of the scales.
std::int64_t cache_columns(ir::DType cache, std::int64_t head_dim);
// Returns the head size for which cache_columns() gives `columns`, or 0 if there is no such head size.
std::int64_t cache_head_dim(ir::DType cache, std::int64_t columns);

// The scales of a cache are an operator's last operands. Returns how many of the operator's `operands` operands come
// before the scales, for a cache of this type.
constexpr std::size_t operands_before_scales(std::size_t operands, ir::DType cache) {
  return has_cache_scales(cache) ? operands - 2 : operands;
}
// Checks the cache's scales, which are the last operands. There must be from `least` to `most` operands before them.
Status check_cache_scales(const ir::OpSignature& s, ir::DType cache, std::size_t least, std::size_t most);

// The scales of one layer's cache, in device memory. Both are null for a cache without scales, which is read as if its
// scales were 1.
struct CacheScales {
  const float* keys = nullptr;    // [1]
  const float* values = nullptr;  // [1]
};
CacheScales cache_scales(const BindArgs& args, ir::DType cache);

}  // namespace tessera
