// From token ids to rows of the embedding table.
#pragma once

#include "tessera/ir/op_decl.h"
#include "tessera/ops/op.h"

namespace tessera {

// embedding(ids i32[T], table X[V, H], [rows i32[T], given X[E, H]]) {scale = 1} → X[T, H]
//   row t is given[rows[t]] where rows[t] is not negative, table[ids[t]] · scale otherwise; zeros for a row outside its
//   table. The engine refuses such ids and rows; the kernel only stays within the tables. The scale is rounded to X
//   first, as in Hugging Face's Gemma. Without rows and given nothing is given.
extern const ir::OpDecl kEmbedding;
extern const KernelDef kEmbeddingCpu;
extern const KernelDef kEmbeddingCuda;

// resolve_ids(ids i32[T], rows i32[T], last_ids i32[R']) {replaced = none, by = 0} → i32[T]
//   rows[t] < 0: ids[t]; otherwise last_ids[rows[t]], what row rows[t] of the last step sampled. A row
//   past last_ids gives -2, which embedding turns into zeros. An id among `replaced`, kMaxReplacedIds at most, becomes
//   `by`: models whose vocabulary has ids for images and sound embed those as another one.
inline constexpr std::size_t kMaxReplacedIds = 8;
extern const ir::OpDecl kResolveIds;
extern const KernelDef kResolveIdsCpu;
extern const KernelDef kResolveIdsCuda;

}  // namespace tessera
