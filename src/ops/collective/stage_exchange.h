// These two operators pass hidden states from one stage of a pipeline to the next (comm/pipeline.h). Rank r of a stage
// sends to rank r of the next stage.
//
//   send_to_next(mut x X[T, N])            x goes to the next stage
//   receive_from_previous(mut x X[T, N])   x becomes what the previous stage sent, in FIFO order
//
// X is a dtype, T counts tokens, and N counts the values of a token. Both operators declare that they write x, so that
// no pass removes or reorders them.
#pragma once

#include "tessera/ir/op_decl.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

extern const ir::OpDecl kSendToNext;
extern const KernelDef kSendToNextCpu;
extern const KernelDef kSendToNextCuda;
extern const ir::OpDecl kReceiveFromPrevious;
extern const KernelDef kReceiveFromPreviousCpu;
extern const KernelDef kReceiveFromPreviousCuda;

}  // namespace tessera
