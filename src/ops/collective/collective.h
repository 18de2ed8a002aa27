// These operators exchange data between the ranks of a tensor-parallel group (comm/communicator.h).
//
//   all_reduce(mut x X[*, N])   x = Σ over ranks of x, added in rank order in float32 and rounded once, so all
//                               ranks get the same bits. With one rank (no communicator) nothing happens.
//   all_gather(x X[R, N]) {ranks} → X[R, N·ranks]   the columns of all ranks side by side, in rank order
//
// X is a dtype, R counts rows, and N counts columns. Between GPUs of several processes NCCL adds the values, in its own
// order and in the tensor's type. All ranks still get the same bits.
#pragma once

#include "tessera/ir/op_decl.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

extern const ir::OpDecl kAllReduce;
extern const KernelDef kAllReduceCpu;
extern const KernelDef kAllReduceCuda;
extern const ir::OpDecl kAllGather;
extern const KernelDef kAllGatherCpu;
extern const KernelDef kAllGatherCuda;

}  // namespace tessera
