// The arguments of the kernels that compute qkv_rope_store.
#pragma once

#include <cstdint>

#include "tessera/ops/cache/cache_type.h"
#include "tessera/ops/cache/qkv_rope_store.h"
#include "tessera/ops/contract/norm_form.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

// The operands and their sizes. The struct is trivially copyable. X is the type of activations, and Y is the type of
// the cache.
template <class X, class Y>
struct QkvRopeStoreArgs {
  const X* qkv;               // [num_tokens, heads + 2 · kv_heads, head_dim]
  const float* table;         // [num_tokens, 2, half]: cosines, then sines
  const std::int32_t* slots;  // [num_tokens]
  Y* k_cache;                 // [num_slots, kv_heads, head_dim]; Int8Cache: in its own layout (int8_cache.h)
  Y* v_cache;                 // like k_cache
  const X* q_weight;          // [head_dim]; null without qk_norm
  const X* k_weight;          // [head_dim]; null without qk_norm
  CacheScales scales;
  X* q;  // [num_tokens, heads, head_dim]
  std::int64_t num_tokens;
  std::int64_t num_slots;
  std::int64_t heads;
  std::int64_t kv_heads;
  std::int64_t head_dim;
  std::int64_t page_size;
  std::int64_t half;  // number of rotated pairs of a head; 2 · half <= head_dim
  float eps;
  NormForm form;  // the form of the query norm and the key norm

  constexpr std::int64_t row_heads() const { return heads + 2 * kv_heads; }
};

template <class X, class Y>
QkvRopeStoreArgs<X, Y> qkv_rope_store_args(const BindArgs& args) {
  const TensorView& cache = args.operands[3];
  const bool norm = operands_before_scales(args.operands.size(), cache.dtype) > 5;
  return {.qkv = args.operands[0].as<X>(),
          .table = args.operands[1].as<float>(),
          .slots = args.operands[2].as<std::int32_t>(),
          .k_cache = cache.as<Y>(),
          .v_cache = args.operands[4].as<Y>(),
          .q_weight = norm ? args.operands[5].as<X>() : nullptr,
          .k_weight = norm ? args.operands[6].as<X>() : nullptr,
          .scales = cache_scales(args, cache.dtype),
          .q = args.results[0].as<X>(),
          .num_tokens = args.operands[0].dim(0),
          .num_slots = cache.dim(0) * cache.dim(1),
          .heads = args.node.attribute_or("heads", std::int64_t{0}),
          .kv_heads = cache.dim(2),
          .head_dim = cache_head_dim(cache.dtype, cache.dim(3)),
          .page_size = cache.dim(1),
          .half = args.operands[1].dim(1) / 2,
          .eps = static_cast<float>(args.node.attribute_or("eps", kDefaultQkNormEps)),
          .form = norm_form(args.node)};
}

}  // namespace tessera
