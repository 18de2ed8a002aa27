// Applies penalties, biases and masks to rows of logits in place, before tokens are sampled.
#pragma once

#include "tessera/ir/op_decl.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

// logit_edits(logits f32[R, V] mutated, first i32[R], count i32[R], ids i32[E], penalties f32[E], offsets f32[E],
//             mask i32[R], masks i32[M, ⌈V/32⌉])
// First, row r applies the edits e in [first[r], first[r] + count[r]):
//   x = logits[r, ids[e]];  logits[r, ids[e]] = (x > 0 ? x / penalties[e] : x * penalties[e]) + offsets[e]
// Then, if mask[r] is not -1, the logit of every token whose bit is clear becomes -inf. Token i has bit number i % 32
// of word i / 32 of masks[mask[r]].
//
// An id occurs at most once within a row. Edits outside [0, E), ids outside [0, V) and masks outside [0, M) are
// ignored.
extern const ir::OpDecl kLogitEdits;
extern const KernelDef kLogitEditsCpu;
extern const KernelDef kLogitEditsCuda;

}  // namespace tessera
