// latent_store: what lies between the projections of multi-head latent attention (latent_attention.h) and attention.
//
//   latent_store(q X[T, H·(N + R)], kv X[T, C + R], weight X[C], table f32[T, R], slots i32[T],
//                mut cache Y[P, page_size, C + R], mut query X[T, H·(C + R)]) {eps, interleaved = false}
//
// A row of kv is a token's latent [C] beside the part of its key that is rotated [R], which all heads share. A head of
// q has N values that meet the latent, then R that are rotated. H follows from query's columns.
//
//   cache[slots[t]] = rms_norm(kv[t, :C], weight, eps), rotary(kv[t, C:])     slots out of range: nothing is written
//   query[t, h, C:] = rotary(q[t, h, N:])                                     query[t, h, :C] is head_linear's
//
// Norm, rotation and interleaved are those of norm.h and rotary.h; results are rounded to X, then to the cache's type.
#pragma once

#include "tessera/ir/op_decl.h"
#include "tessera/ops/op.h"

namespace tessera {

extern const ir::OpDecl kLatentStore;
extern const KernelDef kLatentStoreCpu;
extern const KernelDef kLatentStoreCuda;

// The operands as kernels take them. Trivially copyable.
template <class X, class Y>
struct LatentStoreArgs {
  const X* q;                 // [num_tokens, heads, q_dim]
  const X* kv;                // [num_tokens, latent + rotated]
  const X* weight;            // [latent]
  const float* table;         // [num_tokens, 2, rotated / 2]: cosines, sines
  const std::int32_t* slots;  // [num_tokens]
  Y* cache;                   // [num_slots, latent + rotated]
  X* query;                   // [num_tokens, heads, latent + rotated]
  std::int64_t num_tokens;
  std::int64_t num_slots;
  std::int64_t heads;
  std::int64_t q_dim;
  std::int64_t latent;
  std::int64_t rotated;
  float eps;
  bool interleaved;

  constexpr std::int64_t width() const { return latent + rotated; }
};

template <class X, class Y>
LatentStoreArgs<X, Y> latent_store_args(const BindArgs& args) {
  const TensorView& cache = args.operands[5];
  const std::int64_t heads = args.operands[6].dim(1) / cache.dim(2);
  return {.q = args.operands[0].as<X>(),
          .kv = args.operands[1].as<X>(),
          .weight = args.operands[2].as<X>(),
          .table = args.operands[3].as<float>(),
          .slots = args.operands[4].as<std::int32_t>(),
          .cache = cache.as<Y>(),
          .query = args.operands[6].as<X>(),
          .num_tokens = args.operands[0].dim(0),
          .num_slots = cache.dim(0) * cache.dim(1),
          .heads = heads,
          .q_dim = args.operands[0].dim(1) / heads,
          .latent = args.operands[2].dim(0),
          .rotated = args.operands[3].dim(1),
          .eps = static_cast<float>(args.node.attribute_or("eps", 1e-6)),
          .interleaved = args.node.attribute_or("interleaved", false)};
}

}  // namespace tessera
