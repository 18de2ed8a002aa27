// An adapter may have a whole matrix for the LM head or the embedding (PEFT's modules_to_save). These operators use
// that matrix instead of the model's own matrix, in the rows that have this adapter.
//
//   adapter_whole_linear(mut y X[T, M], x X[T, K], w X[S, M, K], sizes i32[S, 1], rows i32[5, T])
//   adapter_whole_embedding(mut y X[T, M], ids i32[T], w X[S, V, M], sizes i32[S, 1], slots i32[5, T], [rows i32[T]])
//     {first_row = 0}
//
// T is the number of rows, M is the width of y, and S is the number of slots. The table of adapter_rows.h is the
// operand `rows` of adapter_whole_linear and the operand `slots` of adapter_whole_embedding. sizes[slot] is M if the
// slot's adapter has a matrix, and 0 otherwise. Other values are not accepted. adapter_whole_linear sets y[row] to
// w[slot] · x[row], and adapter_whole_embedding sets y[row] to w[slot, ids[row] - first_row]. A row keeps its bits if
// it has no adapter or if its adapter has no matrix. adapter_whole_embedding also does not change two kinds of rows:
// rows in which another embedding, such as a row of an image, takes the place of the token's (rows[row] ≥ 0 in the
// optional operand `rows`), and rows whose id is outside the V rows of `w`. These V rows are the part of the vocabulary
// that one tensor-parallel rank has.
//
// A row's result depends only on that row, its slot and the number of rows. In a deterministic forward it does not
// depend on the number of rows either. Sums are float32, and are rounded once.
#pragma once

#include <cstdint>

#include "tessera/ir/op_decl.h"
#include "tessera/ops/adapters/adapter_linear.h"
#include "tessera/ops/adapters/adapter_tokens.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

extern const ir::OpDecl kAdapterWholeLinear;
extern const ir::OpDecl kAdapterWholeEmbedding;
extern const KernelDef kAdapterWholeLinearCpu;
extern const KernelDef kAdapterWholeEmbeddingCpu;
extern const KernelDef kAdapterWholeLinearCuda;
extern const KernelDef kAdapterWholeEmbeddingCuda;

// The arguments of a kernel that computes adapter_whole_linear. The inherited member `a` is w, `ranks` is sizes, and
// `rank` is M.
struct AdapterWholeLinearArgs : AdapterProductArgs {
  void* y = nullptr;  // X[rows, rank]
};
AdapterWholeLinearArgs adapter_whole_linear_args(const BindArgs& args);

// The arguments of a kernel that computes adapter_whole_embedding. X is the type of the elements.
struct AdapterWholeEmbeddingArgs : AdapterTokens {
  void* y = nullptr;                    // X[rows, cols]
  const void* w = nullptr;              // X[num_slots, columns, cols]
  const std::int32_t* sizes = nullptr;  // [num_slots]
  std::int64_t cols = 0;

  // Returns the index of the row of w that y[row] copies, counted over all slots. Returns -1 if y[row] keeps its
  // values.
  constexpr std::int64_t source(std::int64_t row) const {
    const Found found = find(row);
    return found.slot < 0 || sizes[found.slot] == 0 ? -1 : found.slot * columns + found.column;
  }
};
AdapterWholeEmbeddingArgs adapter_whole_embedding_args(const BindArgs& args);

}  // namespace tessera
