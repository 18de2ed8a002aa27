// These operators are for ranks that each process their own tokens. Before a layer's experts, every rank gathers the
// rows of all ranks. After the experts, each rank gets the sums of its own rows.
//
//   all_gather_rows(x X[T, …]) {ranks} → X[ranks·T, …]    the rows of all ranks, in rank order
//   reduce_scatter(x X[ranks·T, N]) {ranks} → X[T, N]     the T rows from row rank·T on, summed over all ranks in rank
//                                                         order in float32, and rounded once
//
// T is the same on every rank, because the ranks agree on a size and a rank with fewer tokens adds padding. So no
// buffer's size depends on the router's choices, and the calls can be captured. With one rank (no communicator) both
// operators copy.
//
// The ranks are threads of one process or of several processes (Communicator). Between GPUs of one process, rows go
// through mailboxes (peer_exchange.h), in which -0.0 becomes +0.0. Between GPUs of several processes NCCL exchanges the
// rows. NCCL adds in the tensor's type, in an order of its own choice.
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

// Returns the number of ranks in the node's attribute. Returns kFailedPrecondition if the communicator has another
// number of ranks.
Result<std::int64_t> ranks_of_exchange(const BindArgs& args);

}  // namespace tessera
