// The types in which a cache holds keys and values. A cache of f32, bf16 or f16 holds them unchanged. A cache of f8e4m3
// (E4M3) holds them divided by a scale.
//
// An operator with a cache of f8e4m3 has two more operands after its others, k_scale f32[1] and v_scale f32[1], which
// are finite and above 0. Operators with a cache of another type do not have these operands. The stored number is key /
// k_scale, rounded to nearest even and limited to ±448; NaN stays NaN. Kernels that read the cache multiply by the
// scale.
#pragma once

#include <cstddef>
#include <string_view>

#include "tessera/ir/op_decl.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

bool is_cache_type(ir::DType dtype);
constexpr bool has_cache_scales(ir::DType dtype) { return dtype == ir::DType::kFloat8E4M3; }
// The accepted types of a cache, for error messages.
inline constexpr std::string_view kCacheTypes = "f32, bf16, f16 or f8e4m3";

// Returns how many of `operands` operands come before the scales of a cache of this type.
constexpr std::size_t operands_before_scales(std::size_t operands, ir::DType cache) {
  return has_cache_scales(cache) ? operands - 2 : operands;
}
// Checks the cache's scales, which are the last operands. From `least` to `most` operands must come before them.
Status check_cache_scales(const ir::OpSignature& s, ir::DType cache, std::size_t least, std::size_t most);

// The scales of one layer's cache, in device memory. Both are null for a cache without scales, which is read as if its
// scales were 1.
struct CacheScales {
  const float* keys = nullptr;    // [1]
  const float* values = nullptr;  // [1]
};
CacheScales cache_scales(const BindArgs& args, ir::DType cache);

}  // namespace tessera
