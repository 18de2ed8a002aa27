// adapter_lookup computes the first half of the change that a low-rank adapter makes to an embedding: each row of t is
// the column of A that belongs to the row's token. adapter_add (adapter_linear.h) adds the second half, y += scale · t
// · B, as it does after a linear.
//
//   adapter_lookup(ids i32[T], a X[S, R, V], ranks i32[S, 1], slots i32[5, T], [rows i32[T]]) {first_row = 0}
//     → f32[T, R]
//
// T is the number of rows, S is the number of slots, and R is the largest rank. `slots` is the table of adapter_rows.h.
// If a row has the adapter of slot s, then t[row, r] is a[s, r, ids[row] - first_row] for r below ranks[s], and 0 for
// larger r. The whole row of t is 0 in three cases: the row has no adapter; another embedding, such as a row of an
// image, takes the place of the token's (rows[row] ≥ 0); the id is outside the V columns of `a`. These columns are the
// part of the vocabulary that one tensor-parallel rank has.
#pragma once

#include <cstdint>

#include "tessera/ir/op_decl.h"
#include "tessera/ops/adapters/adapter_tokens.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

extern const ir::OpDecl kAdapterLookup;
extern const KernelDef kAdapterLookupCpu;
extern const KernelDef kAdapterLookupCuda;

// The arguments of a kernel that computes adapter_lookup. X is the type of the elements.
struct AdapterLookupArgs : AdapterTokens {
  const void* a = nullptr;              // X[num_slots, rank, columns]
  const std::int32_t* ranks = nullptr;  // [num_slots]
  float* t = nullptr;                   // [rows, rank]
  std::int32_t rank = 0;                // the largest rank of any slot

  // Returns the index in `a` of the element that t[row, r] copies, or -1 if t[row, r] is 0.
  constexpr std::int64_t place(std::int64_t row, std::int32_t r) const {
    const Found found = find(row);
    if (found.slot < 0 || r >= ranks[found.slot]) return -1;
    return (std::int64_t{found.slot} * rank + r) * columns + found.column;
  }
};
AdapterLookupArgs adapter_lookup_args(const BindArgs& args);

}  // namespace tessera
