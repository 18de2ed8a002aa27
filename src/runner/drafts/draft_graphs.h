// Joins the body, the head and the sampler of a next-token layer or a draft model (DraftGraphs) into the graphs that
// make drafts.
#pragma once

#include "tessera/base/status.h"
#include "tessera/ir/graph.h"
#include "tessera/ir/op_decl.h"
#include "tessera/model/model.h"

namespace tessera {

// Returns the head joined with its sampler. The inputs include `hidden` and `wanted_rows`. The first output holds the
// logits, f32[R, ids of the head] for R rows. The last output holds the drafts as ids of the model, i32[R] or i32[R,
// 1].
Result<ir::Graph> make_draft_head(const DraftGraphs& draft, const ir::OpTable& ops);

// Returns the graph of a whole draft. It consists of the body and of `head`, which make_draft_head() returned. The
// first output holds the hidden states of all rows, [T, hidden]. The last output holds the drafts of the wanted rows.
Result<ir::Graph> make_draft_decode(const DraftGraphs& draft, const ir::Graph& head);

}  // namespace tessera
