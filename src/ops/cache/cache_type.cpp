#include "tessera/ops/cache/cache_type.h"

#include <fmt/format.h>

#include <array>

#include "tessera/ops/cache/int8_cache.h"
#include "tessera/ops/contract/shape_rule.h"

namespace tessera {
namespace {

constexpr std::size_t kScaleOperands = 2;

}  // namespace

bool is_cache_type(ir::DType dtype) {
  return ir::is_floating_point(dtype) || has_cache_scales(dtype) || is_int8_cache(dtype);
}

std::string_view cache_type_name(ir::DType cache) { return is_int8_cache(cache) ? "int8" : ir::dtype_name(cache); }

std::int64_t cache_columns(ir::DType cache, std::int64_t head_dim) {
  return is_int8_cache(cache) ? int8_row_bytes(head_dim) : head_dim;
}

std::int64_t cache_head_dim(ir::DType cache, std::int64_t columns) {
  if (!is_int8_cache(cache)) return columns;
  const std::int64_t whole_block = int8_row_bytes(kInt8Block);
  const std::int64_t blocks = (columns + whole_block - 1) / whole_block;
  const std::int64_t head_dim = columns - blocks * kInt8ScaleBytes;
  return head_dim > 0 && int8_row_bytes(head_dim) == columns ? head_dim : 0;
}

Status check_cache_scales(const ir::OpSignature& s, ir::DType cache, std::size_t least, std::size_t most) {
  const std::size_t scales = has_cache_scales(cache) ? kScaleOperands : 0;
  const std::size_t operands = s.operands.size();
  if (operands < least + scales || operands > most + scales)
    return refuse(s, fmt::format("{} operands with a cache of {}; {} to {} are accepted, with {} scales", operands,
                                 ir::dtype_name(cache), least + scales, most + scales, scales));
  constexpr std::array kNames{"k_scale", "v_scale"};
  for (std::size_t i = 0; i < scales; ++i)
    TRY(expect_type(s, operands - kScaleOperands + i, kNames[i], {ir::DType::kFloat32, {1}}));
  return ok_status();
}

CacheScales cache_scales(const BindArgs& args, ir::DType cache) {
  if (!has_cache_scales(cache)) return {};
  const std::size_t first = operands_before_scales(args.operands.size(), cache);
  return {.keys = args.operands[first].as<float>(), .values = args.operands[first + 1].as<float>()};
}

}  // namespace tessera
