// kv_store writes the keys and values of a forward's tokens to their slots of the paged cache.
//
//   kv_store(k X[T, Hkv·D], v X[T, Hkv·D], slots i32[T], mut k_cache Y[P, page_size, Hkv, D], mut v_cache Y[…],
//            [k_scale f32[1], v_scale f32[1]])
//   k_cache[slots[t] / page_size, slots[t] mod page_size] = k[t]; v is written to v_cache in the same way
//
// T counts tokens, and P counts pages. Hkv is the number of KV heads, and D is the head size. X and Y are dtypes.
//
// A cache of f8e4m3 has scales, and holds k[t] / k_scale and v[t] / v_scale (cache_type.h). A cache of u8, on the CPU,
// holds int8 codes with scales of their own. Its last dimension counts the bytes of codes and scales (int8_cache.h).
//
// A row whose slot is negative or past the end of the cache is skipped. Padded rows have slot 0, which no request owns.
#pragma once

#include "tessera/ir/op_decl.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

extern const ir::OpDecl kKvStore;
extern const KernelDef kKvStoreCpu;
extern const KernelDef kKvStoreCuda;

}  // namespace tessera
