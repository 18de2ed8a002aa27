// qkv_rope_store does everything between the joint projection of queries, keys and values and a layer's attention.
//
//   qkv_rope_store(qkv X[T, (Hq + 2·Hkv)·D], table f32[T, Dr], slots i32[T],
//                  mut k_cache Y[P, page_size, Hkv, D], mut v_cache Y[…], [q_weight X[D], k_weight X[D]],
//                  [k_scale f32[1], v_scale f32[1]])
//                 {heads = Hq, eps = 1e-6, qk_norm = false, round_once = false, unit_offset = false}
//       → q X[T, Hq·D]
//
// T counts tokens, and P counts pages. D is the head size, and the first Dr elements of a head are rotated. X and Y are
// dtypes. A row of qkv holds Hq query heads, Hkv key heads and Hkv value heads.
//
// With qk_norm, both weights are present, and query and key heads are normalised first (head_norm). Then query and key
// heads are rotated (rotary, not interleaved). The queries are the result. Keys and values are written to their slots
// of the cache, and the rules of kv_store for slots and scales apply. If there are both weights and scales, the scales
// come last.
//
// The operator decomposes into split, head_norm, rotary and kv_store. It rounds values to X wherever these operators
// would store them.
#pragma once

#include "tessera/ir/op_decl.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

extern const ir::OpDecl kQkvRopeStore;
extern const KernelDef kQkvRopeStoreCpu;
extern const KernelDef kQkvRopeStoreCuda;

inline constexpr double kDefaultQkNormEps = 1e-6;

}  // namespace tessera
