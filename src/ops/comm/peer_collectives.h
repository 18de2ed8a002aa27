// The collectives between GPUs (peer_exchange.h), bound for one size.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "tessera/ops/comm/peer_exchange.h"
#include "tessera/ops/contract/op.h"

namespace tessera::cuda {

// All words of the mailbox become kAbsent; on the current GPU, which is waited for.
cudaError_t clear_mailbox(std::byte* mailbox, std::size_t bytes);

enum class ReduceWay {
  kAtOnce,    // every rank sends all it has to all others: (ranks - 1) · bytes, and one way's time
  kTwoSteps,  // each rank adds up a part and sends the sums: 2 · (ranks - 1) / ranks · bytes, and two ways' time
};
ReduceWay reduce_way(int ranks, std::int64_t bytes);

// x = Σ over ranks, as Communicator::all_reduce; x.bytes() is a multiple of 4.
Result<std::unique_ptr<BoundOp>> bind_peer_reduce(std::shared_ptr<PeerExchange> exchange, const TensorView& x,
                                                  ReduceWay way);
// x [R, N] → y [R, ranks · N]; the bytes of a row of x are a multiple of 4, and most_gathered_bytes() or fewer.
Result<std::unique_ptr<BoundOp>> bind_peer_gather(std::shared_ptr<PeerExchange> exchange, const TensorView& x,
                                                  const TensorView& y);
std::int64_t most_gathered_bytes(const Peers& peers);

// As Communicator::all_gather_rows and reduce_scatter; a rank's rows have a multiple of 4 bytes.
Result<std::unique_ptr<BoundOp>> bind_peer_gather_rows(std::shared_ptr<PeerExchange> exchange, const TensorView& x,
                                                       const TensorView& y);
Result<std::unique_ptr<BoundOp>> bind_peer_scatter(std::shared_ptr<PeerExchange> exchange, const TensorView& x,
                                                   const TensorView& y);

// all_reduce and the add_rms_norm that reads its sum, for few rows.
extern const JoinedKernelDef kPeerNorm;

}  // namespace tessera::cuda
