// Turns token ids into rows of the embedding table, or into given rows that replace them.
#pragma once

#include "tessera/ir/op_decl.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

// embedding(ids i32[T], table X[V, H], [rows i32[T], given X[E, K·H]]) {scale = 1, first_row = 0, table_rows = V}
//     → X[T, H]
//   There are T tokens, V rows of the table, E given rows and H columns. A given row has K parts of H columns, and only
//   the first part is used here. Row t is given[rows[t], 0 : H] if rows[t] is not negative, and table[ids[t]] · scale
//   otherwise. An id outside the table, or a row outside `given`, gives zeros, so that the kernel never reads out of
//   bounds. The engine already refuses such ids and rows. The scale is rounded to X first, as in Hugging Face's Gemma.
//   Without `rows` and `given`, all rows come from the table.
//   If ranks share a table of table_rows rows, this rank has the rows [first_row, first_row + V). An id whose row
//   belongs to another rank gives zeros here, and only the rank with the first slice uses `given`. The sum of
//   all ranks' results is the embedding, except for the sign of zeros.
//
// embedding(ids i32[T], table u8[V, …], …) {values, dtype = "f32", …} → X[T, H]
//   Does the same with a table that is stored as GGUF blocks (quantised_matrix.h). `values` is the type of the blocks,
//   and `dtype` names X. Numbers are rounded to X before they are scaled.
extern const ir::OpDecl kEmbedding;
extern const KernelDef kEmbeddingCpu;
extern const KernelDef kEmbeddingCuda;

// add_given(x X[T, H], rows i32[T], given X[E, K·H]) {part} → X[T, H]
//   Row t is x[t] + given[rows[t], part·H : (part + 1)·H], rounded once, if rows[t] is within `given`, and x[t]
//   otherwise. 1 <= part < K. Some models have K parts of H columns in each row of an image. Part 0 is the embedding,
//   and add_given adds each later part to the hidden states after a layer.
extern const ir::OpDecl kAddGiven;
extern const KernelDef kAddGivenCpu;
extern const KernelDef kAddGivenCuda;

// resolve_ids(ids i32[T], rows i32[T], last_ids i32[R']) {replaced = none, by = 0} → i32[T]
//   Element t is ids[t] if rows[t] < 0, and otherwise last_ids[rows[t]], the token that row rows[t] of the previous
//   step sampled. If row rows[t] is past the end of last_ids, element t is -2, which embedding turns into zeros.
//   `replaced` is a list of at most kMaxReplacedIds ids. Each of them becomes `by`, because some models embed the ids
//   of images and sound as another id.
inline constexpr std::size_t kMaxReplacedIds = 8;
extern const ir::OpDecl kResolveIds;
extern const KernelDef kResolveIdsCpu;
extern const KernelDef kResolveIdsCuda;

}  // namespace tessera
