// Turns token ids into rows of the embedding table, or into given rows that replace them.
#pragma once

#include "tessera/ir/op_decl.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

// embedding(ids i32[T], table X[V, H], [rows i32[T], given X[E, K·H]]) {scale = 1, first_row = 0, table_rows = V}
//     → X[T, H]
//   Row t is given[rows[t], 0 : H] if rows[t] is not negative, and table[ids[t]] · scale otherwise. Rows outside their
//   table are zeros: the engine refuses such ids and rows, and the kernel only stays within its tables. The scale is
//   rounded to X first, as in Hugging Face's Gemma. Without `rows` and `given`, all rows come from the table. If ranks
//   share a table of table_rows rows, this rank has the rows [first_row, first_row + V). A row of another rank is
//   zeros, and only the rank with the first slice uses `given`. The sum over the ranks is then the row, except for the
//   sign of zeros.
//
// embedding(ids i32[T], table u8[V, …], …) {values, dtype = "f32", …} → X[T, H]
//   The same for a table of GGUF's blocks (quantised_matrix.h), of which `values` is the type and X the dtype. Numbers
//   are rounded to X before the scale.
extern const ir::OpDecl kEmbedding;
extern const KernelDef kEmbeddingCpu;
extern const KernelDef kEmbeddingCuda;

// add_given(x X[T, H], rows i32[T], given X[E, K·H]) {part} → X[T, H]
//   Row t is x[t] + given[rows[t], part·H : (part + 1)·H], rounded once, if rows[t] is within `given`, and x[t]
//   otherwise. 1 <= part < K. It adds a further part of an image row, for one layer.
extern const ir::OpDecl kAddGiven;
extern const KernelDef kAddGivenCpu;
extern const KernelDef kAddGivenCuda;

// resolve_ids(ids i32[T], rows i32[T], last_ids i32[R']) {replaced = none, by = 0} → i32[T]
//   Gives ids[t] if rows[t] < 0, and last_ids[rows[t]] otherwise: the token that row rows[t] of the last step sampled.
//   A row past last_ids gives -2, which embedding turns into zeros. An id in `replaced` (at most kMaxReplacedIds)
//   becomes `by`: some models embed the ids of images and sound as another id.
inline constexpr std::size_t kMaxReplacedIds = 8;
extern const ir::OpDecl kResolveIds;
extern const KernelDef kResolveIdsCpu;
extern const KernelDef kResolveIdsCuda;

}  // namespace tessera
