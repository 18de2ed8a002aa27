// Computes the log-probabilities of rows of logits.
#pragma once

#include "tessera/ir/op_decl.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

// log_softmax(x f32[R, V]) → f32[R, V] computes x - max - log Σ e^(x - max) for each row, where max is the row's
// maximum. A row that holds NaN or +inf, or only -inf, gives NaN.
extern const ir::OpDecl kLogSoftmax;
extern const KernelDef kLogSoftmaxCpu;
extern const KernelDef kLogSoftmaxCuda;

}  // namespace tessera
