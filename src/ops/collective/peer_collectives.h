// Binds collective operators between the GPUs of one process (peer_exchange.h). A bound operator exchanges tensors of
// one size.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "tessera/comm/peer_exchange.h"
#include "tessera/ops/contract/op.h"

namespace tessera::cuda {

enum class ReduceWay {
  kAtOnce,    // each rank sends all its data to all others: (ranks - 1) · bytes in one hop
  kTwoSteps,  // each rank adds up a part and sends the sums: 2 · (ranks - 1) / ranks · bytes in two hops
};
ReduceWay reduce_way(int ranks, std::int64_t bytes);

// Binds an all-reduce, which replaces x by the sum of x over the ranks, as in Communicator::all_reduce. x.bytes() must
// be a multiple of 4.
Result<std::unique_ptr<BoundOp>> bind_peer_reduce(std::shared_ptr<PeerExchange> exchange, const TensorView& x,
                                                  ReduceWay way);
// Binds an all-gather of x [R, N], whose result is y [R, ranks · N]. The bytes of a row of x must be a multiple of 4
// and at most most_gathered_bytes().
Result<std::unique_ptr<BoundOp>> bind_peer_gather(std::shared_ptr<PeerExchange> exchange, const TensorView& x,
                                                  const TensorView& y);
std::int64_t most_gathered_bytes(const Peers& peers);

// These functions bind all_gather_rows and reduce_scatter. The bound operators do the same as Communicator's functions
// of these names. The bytes of a rank's rows must be a multiple of 4.
Result<std::unique_ptr<BoundOp>> bind_peer_gather_rows(std::shared_ptr<PeerExchange> exchange, const TensorView& x,
                                                       const TensorView& y);
Result<std::unique_ptr<BoundOp>> bind_peer_scatter(std::shared_ptr<PeerExchange> exchange, const TensorView& x,
                                                   const TensorView& y);

// Joins all_reduce with the add_rms_norm that reads its sum, for few rows.
extern const JoinedKernelDef kPeerNorm;

}  // namespace tessera::cuda
