#include "tessera/ops/cache/kv_store.h"

#include <fmt/format.h>

#include <cstring>

#include "tessera/device/cpu/parallel.h"
#include "tessera/ops/cache/cpu_cache_type.h"
#include "tessera/ops/cpu/cpu_math.h"
#include "tessera/ops/cpu/cpu_op.h"

namespace tessera {
namespace {

constexpr std::size_t kOwnOperands = 5;  // number of operands without the cache's scales

Result<std::vector<ir::Type>> infer(const ir::OpSignature& signature) {
  const ir::Type& k = signature.operands[0];
  const ir::Type& v = signature.operands[1];
  const ir::Type& slots = signature.operands[2];
  const ir::Type& cache = signature.operands[3];
  if (!ir::is_floating_point(k.dtype) || k.shape.size() != 2)
    return invalid_argument(fmt::format("kv_store takes keys X[T, Hkv*D], not {}", k.to_string()));
  if (v != k)
    return invalid_argument(
        fmt::format("kv_store's values are {}, its keys {}; they must agree", v.to_string(), k.to_string()));
  if (slots.dtype != ir::DType::kInt32 || slots.shape != ir::Shape{k.shape[0]})
    return invalid_argument(
        fmt::format("kv_store takes one i32 slot for each row of {}, not {}", k.to_string(), slots.to_string()));
  if (!is_cache_type(cache.dtype) || cache.shape.size() != 4)
    return invalid_argument(
        fmt::format("kv_store takes a cache Y[P, page_size, Hkv, D] of {}, not {}", kCacheTypes, cache.to_string()));
  if (signature.operands[4] != cache)
    return invalid_argument(fmt::format("kv_store's value cache is {}, its key cache {}; they must agree",
                                        signature.operands[4].to_string(), cache.to_string()));
  TRY(check_cache_scales(signature, cache.dtype, kOwnOperands, kOwnOperands));
  const std::optional<std::int64_t> heads = cache.shape[2].constant();
  const std::int64_t head_dim = cache_head_dim(cache.dtype, cache.shape[3].constant().value_or(0));
  if (!heads || head_dim <= 0 || k.shape[1] != ir::Dim(*heads * head_dim))
    return invalid_argument(
        fmt::format("kv_store's keys {} do not fill a token of the cache {}", k.to_string(), cache.to_string()));
  return std::vector<ir::Type>{};
}

template <class X, class Y>
TESSERA_CPU_CLONES void store_row(const X* from, float scale, Y* to, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = to_cache<Y>(to_float(from[i]), scale);
}

template <class X, class Y>
std::unique_ptr<BoundOp> make_store(const BindArgs& args) {
  const X* k = args.operands[0].as<X>();                            // [T, row]
  const X* v = args.operands[1].as<X>();                            // [T, row]
  const std::int32_t* slots = args.operands[2].as<std::int32_t>();  // [T]
  const TensorView& cache = args.operands[3];
  Y* k_cache = cache.as<Y>();             // [num_slots, row]
  Y* v_cache = args.operands[4].as<Y>();  // [num_slots, row]
  const CacheScales scales = cache_scales(args, cache.dtype);
  const std::int64_t num_tokens = args.operands[0].dim(0);
  const std::int64_t row = args.operands[0].dim(1);
  const std::int64_t num_slots = cache.dim(0) * cache.dim(1);
  const std::int64_t kv_heads = cache.dim(2);
  const Int8Layout layout{.page_size = cache.dim(1), .kv_heads = kv_heads, .head_dim = row / kv_heads};
  return make_cpu_op("kv_store", [=] {
    const float k_scale = scale_or_one(scales.keys);
    const float v_scale = scale_or_one(scales.values);
    const std::int64_t grain = std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(row, 1));
    parallel_for(num_tokens, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = begin; t < end; ++t) {
        const std::int64_t slot = slots[t];
        if (slot < 0 || slot >= num_slots) continue;
        if constexpr (std::is_same_v<Y, Int8Cache>) {
          store_int8(k + t * row, k_cache, layout, slot, 0, kv_heads);
          store_int8(v + t * row, v_cache, layout, slot, 0, kv_heads);
        } else {
          store_row(k + t * row, k_scale, k_cache + slot * row, row);
          store_row(v + t * row, v_scale, v_cache + slot * row, row);
        }
      }
    });
  });
}

Result<std::unique_ptr<BoundOp>> bind(const BindArgs& args) {
  using Bound = Result<std::unique_ptr<BoundOp>>;
  return dispatch_dtype(args.operands[0].dtype, "kv_store", [&]<class X>() -> Bound {
    return dispatch_cache_type(args.operands[3].dtype, "kv_store's cache",
                               [&]<class Y>() -> Bound { return make_store<X, Y>(args); });
  });
}

}  // namespace

const ir::OpDecl kKvStore{
    .name = "kv_store",
    .summary = "k_cache[slots[t]] = k[t], v_cache[slots[t]] = v[t]; k, v [T, Hkv*D], caches [P, page_size, Hkv, D]",
    .operands = {{.name = "k"},
                 {.name = "v"},
                 {.name = "slots"},
                 {.name = "k_cache", .mutated = true},
                 {.name = "v_cache", .mutated = true},
                 {.name = "k_scale", .optional = true},
                 {.name = "v_scale", .optional = true}},
    .attributes = {},
    .infer = infer,
};

const KernelDef kKvStoreCpu{.op = "kv_store", .name = "cpu", .bind = bind};

}  // namespace tessera
