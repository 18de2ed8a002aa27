// Computes the end of a forward for wanted rows only. After the last layer's attention no row reads another row, and a
// prompt's head reads only the prompt's last row. The rest of that layer is therefore skipped for the other rows.
//   body     … attention │ o_proj, norm, mlp, norm → hidden [T]        head  gather, lm_head → logits [R]
//   prefill  … attention → its rows [T], residual [T]                  head  gather both, o_proj … norm, lm_head
//
// This saves the matmuls of nearly one layer, which is 1/n of a prompt's work for n layers. If attention is the last
// operator of the new body, it also computes wanted rows only; keys and values are still stored for every row.
#pragma once

#include <optional>

#include "tessera/base/status.h"
#include "tessera/ir/op_decl.h"
#include "tessera/model/model.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

// Takes a body with one output and a head that gathers rows of it, both after the passes. Moves nodes from the end of
// the body to the head. The new body outputs the values that the new head reads, under their old names. The new head
// outputs the hidden states [R, N] of the wanted rows, followed by the old head's outputs. The slots tell a moved node
// which rows are padding. In the new head, input_names::kRowMarks replaces the slots. If an output is computed for
// wanted rows alone, its other rows are undefined. Returns std::nullopt if no node can be moved, if a moved node reads
// another input than the slots, or if it reads a value of the body that does not consist of whole rows, is a view, or
// is written later.
Result<std::optional<PrefillGraphs>> end_with_wanted_rows(const ir::Graph& body, const ir::Graph& head,
                                                          const ir::OpTable& ops, const KernelTable& kernels);

}  // namespace tessera
