// Joins the graphs of a next-token layer or a draft model (DraftGraphs) into the graphs that make drafts.
#pragma once

#include "tessera/base/status.h"
#include "tessera/ir/graph.h"
#include "tessera/ir/op_decl.h"
#include "tessera/model/model.h"

namespace tessera {

// Returns the head joined with its sampler. The inputs include `hidden` and `wanted_rows`. The first output is the
// logits f32[R, ids], and the last output is the drafts as ids of the model, i32[R] or i32[R, 1].
Result<ir::Graph> make_draft_head(const DraftGraphs& draft, const ir::OpTable& ops);

// Returns the graph of a whole draft: the body and `head`, a result of make_draft_head(). The last output is the hidden
// states of the wanted rows [R, hidden], and the output before it is the drafts.
Result<ir::Graph> make_draft_decode(const DraftGraphs& draft, const ir::Graph& head, const ir::OpTable& ops);

}  // namespace tessera
