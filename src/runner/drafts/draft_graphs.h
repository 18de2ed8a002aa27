// Builds the graphs that draft from the graphs of a next-token layer or a draft model (DraftGraphs).
#pragma once

#include "tessera/base/status.h"
#include "tessera/ir/graph.h"
#include "tessera/ir/op_decl.h"
#include "tessera/model/model.h"

namespace tessera {

// Returns the head and its sampler: hidden, wanted_rows … → logits f32[R, ids] first, and last the drafts as ids of the
// model, i32[R] or i32[R, 1].
Result<ir::Graph> make_draft_head(const DraftGraphs& draft, const ir::OpTable& ops);

// Returns one whole draft: the body and `head`, a result of make_draft_head(). The last output is the hidden states of
// the wanted rows [R, hidden], and the last but one the drafts.
Result<ir::Graph> make_draft_decode(const DraftGraphs& draft, const ir::Graph& head, const ir::OpTable& ops);

}  // namespace tessera
