// latent_store: writes the cache rows of multi-head latent attention (latent_attention.h).
//
//   latent_store(x X[T, W], weight X[C], table f32[T, R], slots i32[T], mut cache Y[P, page_size, C + R],
//                q_weight X[Q] optional, mut q X[T, Q] optional) {eps, interleaved = false}
//
// x is a joint projection. The last C + R of a row's W elements are a token's latent [C] and then the rotated part of
// its key [R], which all heads share. If queries are made from a latent too, the query latent is the first Q elements
// of the row.
//
//   cache[slots[t]] = rms_norm(x[t, W - R - C : W - R], weight, eps), rotary(x[t, W - R :])
//   q[t] = rms_norm(x[t, : Q], q_weight, eps)
//
// A row with a slot out of range is not written to the cache. norm.h defines the norm, and rotary.h the rotation and
// `interleaved`. Results are rounded to X, then to the cache's type.
#pragma once

#include "tessera/ir/op_decl.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

extern const ir::OpDecl kLatentStore;
extern const KernelDef kLatentStoreCpu;
extern const KernelDef kLatentStoreCuda;

// The arguments of the kernels. The struct is trivially copyable.
template <class X, class Y>
struct LatentStoreArgs {
  const X* x;                 // [num_tokens, x_width]
  const X* weight;            // [latent]
  const float* table;         // [num_tokens, 2, rotated / 2]: cosines, sines
  const std::int32_t* slots;  // [num_tokens]
  Y* cache;                   // [num_slots, latent + rotated]
  const X* q_weight;          // [q_latent]
  X* q;                       // [num_tokens, q_latent]
  std::int64_t num_tokens;
  std::int64_t num_slots;
  std::int64_t x_width;
  std::int64_t latent;
  std::int64_t rotated;
  std::int64_t q_latent;  // 0: queries are not made from a latent
  float eps;
  bool interleaved;

  constexpr std::int64_t width() const { return latent + rotated; }
};

template <class X, class Y>
LatentStoreArgs<X, Y> latent_store_args(const BindArgs& args) {
  const TensorView& cache = args.operands[4];
  const bool has_q = args.operands.size() > 5;
  return {.x = args.operands[0].as<X>(),
          .weight = args.operands[1].as<X>(),
          .table = args.operands[2].as<float>(),
          .slots = args.operands[3].as<std::int32_t>(),
          .cache = cache.as<Y>(),
          .q_weight = has_q ? args.operands[5].as<X>() : nullptr,
          .q = has_q ? args.operands[6].as<X>() : nullptr,
          .num_tokens = args.operands[0].dim(0),
          .num_slots = cache.dim(0) * cache.dim(1),
          .x_width = args.operands[0].dim(1),
          .latent = args.operands[1].dim(0),
          .rotated = args.operands[2].dim(1),
          .q_latent = has_q ? args.operands[5].dim(0) : 0,
          .eps = static_cast<float>(args.node.attribute_or("eps", 0.0)),
          .interleaved = args.node.attribute_or("interleaved", false)};
}

}  // namespace tessera
