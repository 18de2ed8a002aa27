// The end of a forward for wanted rows alone. Behind the last layer's attention no row reads another one, and of a
// prompt the head takes its last row: the rest of that layer need not be computed for the others.
//
//   body     … attention │ o_proj, norm, mlp, norm → hidden [T]        head  gather, lm_head → logits [R]
//   prefill  … attention → its rows [T], residual [T]                  head  gather both, o_proj … norm, lm_head
//
// What is left out are the matmuls of nearly one layer: 1/n of a prompt's work for n layers. The attention itself is
// told to write wanted rows alone, where it is the last that the body does: its keys and values are needed of every
// row.
#pragma once

#include <optional>

#include "tessera/base/status.h"
#include "tessera/ir/op_decl.h"
#include "tessera/model/model.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

// Of a body with one output and a head that gathers rows of it, after the passes. The new body's outputs are what its
// nodes made that the new head reads, under their names; the head's are `hidden` [R, N] and what it had. Inputs of rows
// [T] that the moved nodes read are slots, which tell them padding alone: input_names::kRowMarks stands for them.
// Rows of an output that the batch does not want may hold anything where the output is a result of wanted rows alone.
// std::nullopt where no node can be moved, or where what would be handed over is not of whole rows.
Result<std::optional<PrefillGraphs>> end_with_wanted_rows(const ir::Graph& body, const ir::Graph& head,
                                                          const ir::OpTable& ops, const KernelTable& kernels);

}  // namespace tessera
