// Computes the end of a forward only for the wanted rows, which are the rows whose logits are wanted. After the
// attention of the last layer no row reads another row, and the head of a prompt reads only the prompt's last row. The
// rest of the last layer is therefore skipped for the other rows. T counts all rows, and R counts the wanted rows. The
// line "body" shows the two graphs of a prompt before the change, and the line "prefill" shows them after it.
//   body     … attention │ o_proj, norm, mlp, norm → hidden [T]        head  gather, lm_head → logits [R]
//   prefill  … attention → its rows [T], residual [T]                  head  gather both, o_proj … norm, lm_head
//
// This saves the matrix multiplications of nearly one layer. In a model of n layers, these are nearly 1/n of a prompt's
// work. If attention is the last operator of the new body, it too computes only the wanted rows. Keys and values are
// still stored for every row.
#pragma once

#include <optional>

#include "tessera/base/status.h"
#include "tessera/ir/op_decl.h"
#include "tessera/model/model.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

// Moves nodes from the end of the body to the head. Preconditions: the passes have run on both graphs, the body has one
// output, and the head gathers rows of it. The new body outputs the values that the new head reads, under their old
// names. The new head outputs the hidden states [R, N] of the wanted rows, followed by the old head's outputs. Nodes of
// the body find the padding rows through the input `slots`. Nodes of the new head find them through the input
// input_names::kRowMarks. If the new body computes an output only for the wanted rows, the output's other rows have
// undefined values. Returns std::nullopt if no node can be moved, or if a moved node reads an input other than the
// slots. Also returns std::nullopt if a moved node reads a value that an earlier node made and that does not consist of
// whole rows, is a view, or is written later.
Result<std::optional<PrefillGraphs>> end_with_wanted_rows(const ir::Graph& body, const ir::Graph& head,
                                                          const ir::OpTable& ops, const KernelTable& kernels);

}  // namespace tessera
