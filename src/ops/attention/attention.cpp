#include "tessera/ops/attention/attention.h"

#include <fmt/format.h>

#include <limits>

namespace tessera {
namespace {

Status check_cache(const ir::Type& cache, const ir::Type& v_cache) {
  if (!is_cache_type(cache.dtype) || cache.shape.size() != 4)
    return invalid_argument(
        fmt::format("attention takes caches Y[P, page_size, Hkv, D] of {}, not {}", kCacheTypes, cache.to_string()));
  if (v_cache != cache)
    return invalid_argument(fmt::format("attention's value cache is {}, its key cache {}; they must agree",
                                        v_cache.to_string(), cache.to_string()));
  for (std::size_t i = 1; i < 4; ++i)
    if (cache.shape[i].constant().value_or(0) < 1)
      return invalid_argument(
          fmt::format("attention's cache {} needs constant page size, heads and head size", cache.to_string()));
  if (cache_head_dim(cache.dtype, *cache.shape[3].constant()) == 0)
    return invalid_argument(fmt::format("attention's cache {}: heads of no size have {} columns in int8",
                                        cache.to_string(), cache.shape[3].to_string()));
  return ok_status();
}

Status check_sinks(const ir::OpSignature& signature, std::int64_t heads) {
  if (!has_sinks(signature.operands.size(), signature.operands[1].dtype)) return ok_status();
  const ir::Type wanted{ir::DType::kFloat32, {heads}};
  const ir::Type& sinks = signature.operands[4];
  if (sinks != wanted)
    return invalid_argument(fmt::format("attention takes sinks {}, one for each query head, not {}", wanted.to_string(),
                                        sinks.to_string()));
  return ok_status();
}

Status check_attributes(const ir::Node& node) {
  const std::int64_t group = node.attribute_or("group", std::int64_t{0});
  const std::int64_t window = node.attribute_or("window", std::int64_t{0});
  const double softcap = node.attribute_or("softcap", 0.0);
  if (group < 0) return invalid_argument(fmt::format("attention's group is {}; cache groups count from 0", group));
  constexpr std::int64_t kMostWindow = std::numeric_limits<std::int32_t>::max();  // kernels count keys in 32 bits
  if (window < 0 || window > kMostWindow)
    return invalid_argument(
        fmt::format("attention's window is {}; 0, which means none, to {} is accepted", window, kMostWindow));
  if (!(softcap >= 0)) return invalid_argument(fmt::format("attention's softcap is {}; 0 means none", softcap));
  return ok_status();
}

Result<std::vector<ir::Type>> infer_attention(const ir::OpSignature& signature) {
  const ir::Type& q = signature.operands[0];
  const ir::Type& cache = signature.operands[1];
  const ir::Type& out = signature.operands[3];
  if (!ir::is_floating_point(q.dtype) || q.shape.size() != 2)
    return invalid_argument(fmt::format("attention takes queries X[T, Hq*D], not {}", q.to_string()));
  TRY(check_cache(cache, signature.operands[2]));
  const std::int64_t kv_heads = *cache.shape[2].constant();
  const std::int64_t head_dim = cache_head_dim(cache.dtype, *cache.shape[3].constant());
  const std::int64_t width = q.shape[1].constant().value_or(0);
  if (width < 1 || width % (kv_heads * head_dim) != 0)
    return invalid_argument(fmt::format(
        "attention's queries are {}; their columns must be a multiple of the cache's {} heads of {} elements",
        q.to_string(), kv_heads, head_dim));
  if (out != q)
    return invalid_argument(
        fmt::format("attention writes to {}, its queries are {}; they must agree", out.to_string(), q.to_string()));
  TRY(check_cache_scales(signature, cache.dtype, 4, 5));
  TRY(check_sinks(signature, width / head_dim));
  TRY(check_attributes(signature.node));
  return std::vector<ir::Type>{};
}

}  // namespace

const ir::OpDecl kAttention{
    .name = "attention",
    .summary = "out = softmax(scale * q k^T) v over the paged cache; q, out [T, Hq*D], caches [P, page_size, Hkv, D]",
    .operands = {{.name = "q"},
                 {.name = "k_cache"},
                 {.name = "v_cache"},
                 {.name = "out", .mutated = true},
                 {.name = "sinks", .optional = true},
                 {.name = "k_scale", .optional = true},
                 {.name = "v_scale", .optional = true}},
    .attributes = {{.name = "group", .kind = ir::AttributeKind::kInt, .required = true},
                   {.name = "scale", .kind = ir::AttributeKind::kDouble, .required = true},
                   {.name = "window", .kind = ir::AttributeKind::kInt},
                   {.name = "softcap", .kind = ir::AttributeKind::kDouble},
                   {.name = kWantedRowsOnly, .kind = ir::AttributeKind::kBool}},
    .infer = infer_attention,
    .split_by_default = true,
};

}  // namespace tessera
