// How ranks that each have tokens of their own meet: before a layer's experts the rows of all come together, and behind
// them each takes back the sums of its own.
//
//   all_gather_rows(x X[T, …]) {ranks} → X[ranks·T, …]    the ranks' rows one below the other, in rank order
//   reduce_scatter(x X[ranks·T, N]) {ranks} → X[T, N]     Σ over ranks of the T rows that begin with row rank·T, added
//                                                         in rank order in float32 and rounded once
//
// T is the same on every rank: the size that all agreed on, whoever has fewer tokens pads. So no buffer depends on what
// a router chose, and the calls can be captured. One rank (no communicator): a copy.
//
// The ranks are threads of one process, or of several (Communicator). Between GPUs of one process rows go through
// mailboxes (peer_exchange.h), in which a -0.0 becomes a zero; of several by NCCL, which adds up in the tensor's type
// and in an order of its own.
#pragma once

#include "tessera/ir/op_decl.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

extern const ir::OpDecl kAllGatherRows;
extern const KernelDef kAllGatherRowsCpu;
extern const KernelDef kAllGatherRowsCuda;
extern const ir::OpDecl kReduceScatter;
extern const KernelDef kReduceScatterCpu;
extern const KernelDef kReduceScatterCuda;

// The ranks of the call, as its attribute says. kFailedPrecondition where other ranks run.
Result<std::int64_t> ranks_of_exchange(const BindArgs& args);

}  // namespace tessera
