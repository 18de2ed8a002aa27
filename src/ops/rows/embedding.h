// From token ids to rows of the embedding table, or to rows that are given in their place.
#pragma once

#include "tessera/ir/op_decl.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

// embedding(ids i32[T], table X[V, H], [rows i32[T], given X[E, K·H]]) {scale = 1, first_row = 0, table_rows = V}
//     → X[T, H]
//   row t is given[rows[t], 0 : H] where rows[t] is not negative, table[ids[t]] · scale otherwise; zeros for a row
//   outside its table. The engine refuses such ids and rows; the kernel only stays within the tables. The scale is
//   rounded to X first, as in Hugging Face's Gemma. Without rows and given nothing is given.
//   Where ranks share a table of table_rows, this one has its rows [first_row, first_row + V). A row that another rank
//   has is zeros, and what is given is the first slice's alone: the sum over the ranks is the row, but for the sign of
//   zeros.
extern const ir::OpDecl kEmbedding;
extern const KernelDef kEmbeddingCpu;
extern const KernelDef kEmbeddingCuda;

// add_given(x X[T, H], rows i32[T], given X[E, K·H]) {part} → X[T, H]
//   row t is x[t] + given[rows[t], part·H : (part + 1)·H], rounded once, where rows[t] is within given; x[t] otherwise.
//   1 <= part < K. What image rows carry beside embeddings, for one layer.
extern const ir::OpDecl kAddGiven;
extern const KernelDef kAddGivenCpu;
extern const KernelDef kAddGivenCuda;

// resolve_ids(ids i32[T], rows i32[T], last_ids i32[R']) {replaced = none, by = 0} → i32[T]
//   rows[t] < 0: ids[t]; otherwise last_ids[rows[t]], what row rows[t] of the last step sampled. A row
//   past last_ids gives -2, which embedding turns into zeros. An id among `replaced`, kMaxReplacedIds at most, becomes
//   `by`: models whose vocabulary has ids for images and sound embed those as another one.
inline constexpr std::size_t kMaxReplacedIds = 8;
extern const ir::OpDecl kResolveIds;
extern const KernelDef kResolveIdsCpu;
extern const KernelDef kResolveIdsCuda;

}  // namespace tessera
