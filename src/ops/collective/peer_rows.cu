// Exchanges rows over mailboxes (peer_kernels.cuh), for all_gather_rows and reduce_scatter. A unit has 4 or 16 bytes.
#include <algorithm>
#include <utility>

#include "tessera/ops/collective/peer_collectives.h"
#include "tessera/ops/collective/peer_kernels.cuh"
#include "tessera/ops/cuda/cuda_op.h"

namespace tessera::cuda {
namespace {

// The maximum number of blocks of a launch. Launches of different ranks cannot deadlock. Block b waits only for block b
// of each peer. The peer's block starts sooner or later, because no kernel before it on the peer's GPU waits for this
// rank's block. The peer's block may start late if other kernels fill the peer's GPU (two-batch overlap).
constexpr std::int64_t kMostBlocks = 128;

LaunchShape shape_of(std::int64_t units) {
  return {.grid = dim3(static_cast<unsigned>(std::min(kMostBlocks, ceil_div(units, kPeerThreads)))),
          .block = dim3(kPeerThreads)};
}

// For every rank r, copies the units [0, units) of that rank's x to the units [r · stride, r · stride + units) of y.
template <int kWords>
__global__ void __launch_bounds__(kPeerThreads, 1)
    gather_rows(const __grid_constant__ Peers peers, const Unit<kWords>* x, Unit<kWords>* y, std::int64_t units,
                std::int64_t stride) {
  let_next_begin();
  wait_for_previous();
  const Turn turn = begin_turn(peers);
  for (std::int64_t i = thread_of_grid(); i < units; i += threads_of_grid())
    send_to_others(peers, turn, units, i, present(x[i]));
  clear_last_turn(peers, turn);
  for (std::int64_t i = thread_of_grid(); i < units; i += threads_of_grid()) {
    Unit<kWords> of_rank[kMostPeers];
    receive(peers, turn, units, i, present(x[i]), of_rank);
#pragma unroll
    for (int r = 0; r < kMostPeers; ++r)
      if (r < peers.ranks) y[r * stride + i] = of_rank[r];
  }
  end_turn(peers, turn, (peers.ranks - 1) * units * kWords);
}

// Let r be the number of this rank. For each i < units, sets y[i] to the sum over all ranks of their x[r · stride + i].
template <class T, int kWords>
__global__ void __launch_bounds__(kPeerThreads, 1)
    scatter_sums(const __grid_constant__ Peers peers, const Unit<kWords>* x, Unit<kWords>* y, std::int64_t units,
                 std::int64_t stride) {
  let_next_begin();
  wait_for_previous();
  const Turn turn = begin_turn(peers);
  for (std::int64_t i = thread_of_grid(); i < units; i += threads_of_grid()) {
    for (int k = 1; k < peers.ranks; ++k) {
      const int to = (peers.rank + k) % peers.ranks;
      store_mail(slot_of<kWords>(peers, turn, to, peers.rank, units) + i, present(x[to * stride + i]));
    }
  }
  clear_last_turn(peers, turn);
  for (std::int64_t i = thread_of_grid(); i < units; i += threads_of_grid()) {
    Unit<kWords> of_rank[kMostPeers];
    receive(peers, turn, units, i, present(x[peers.rank * stride + i]), of_rank);
    y[i] = sum_of_ranks<T, kWords>(of_rank, peers.ranks);
  }
  end_turn(peers, turn, (peers.ranks - 1) * units * kWords);
}

// Makes an operator that launches the kernel over the units of a rank's rows, as many units at a time as a mailbox can
// take.
template <int kWords, auto kKernel>
Result<std::unique_ptr<BoundOp>> bind_rows(const char* name, std::shared_ptr<PeerExchange> exchange,
                                           const TensorView& x, const TensorView& y, std::int64_t bytes) {
  const std::int64_t units = bytes / (4 * kWords);
  const std::int64_t most = exchange->peers().buffer_words / kWords / (exchange->peers().ranks - 1);
  TRY(load_code(kKernel));
  const auto* from = x.as<Unit<kWords>>();
  auto* to = y.as<Unit<kWords>>();
  return make_cuda_op(name, [=, exchange = std::move(exchange)](cudaStream_t stream) {
    for (std::int64_t first = 0; first < units; first += most) {
      const std::int64_t count = std::min(most, units - first);
      launch_early(kKernel, shape_of(count), stream, exchange->peers(), from + first, to + first, count, units);
    }
  });
}

}  // namespace

Result<std::unique_ptr<BoundOp>> bind_peer_gather_rows(std::shared_ptr<PeerExchange> exchange, const TensorView& x,
                                                       const TensorView& y) {
  const auto bind = [&]<int kWords>() {
    return bind_rows<kWords, gather_rows<kWords>>("all_gather_rows", std::move(exchange), x, y, x.bytes());
  };
  return x.bytes() % 16 == 0 ? bind.template operator()<4>() : bind.template operator()<1>();
}

Result<std::unique_ptr<BoundOp>> bind_peer_scatter(std::shared_ptr<PeerExchange> exchange, const TensorView& x,
                                                   const TensorView& y) {
  return dispatch_dtype(x.dtype, "reduce_scatter", [&]<class T>() {
    const auto bind = [&]<int kWords>() {
      return bind_rows<kWords, scatter_sums<T, kWords>>("reduce_scatter", std::move(exchange), x, y, y.bytes());
    };
    return y.bytes() % 16 == 0 ? bind.template operator()<4>() : bind.template operator()<1>();
  });
}

}  // namespace tessera::cuda
