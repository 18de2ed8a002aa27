#include "tessera/ops/collective/peer_collectives.h"

#include <algorithm>
#include <utility>

#include "tessera/ops/collective/peer_kernels.cuh"
#include "tessera/ops/cuda/cuda_op.h"

namespace tessera::cuda {
namespace {

// The maximum number of blocks of a launch. Launches of different ranks cannot deadlock. Block b waits only for block b
// of each peer. The peer's block starts sooner or later, because no kernel before it on the peer's GPU waits for this
// rank's block. The peer's block may start late if other kernels fill the peer's GPU (two-batch overlap).
constexpr std::int64_t kMostBlocks = 128;
// A sum is computed in two steps (ReduceWay) if it has at least this number of bytes: kTwoStepBytesOfTwo for two ranks,
// and kTwoStepBytes for more ranks. Three or more ranks transfer fewer bytes in two steps than at once. From
// kTwoStepBytes on, this saving exceeds the cost of the second transfer.
constexpr std::int64_t kTwoStepBytesOfTwo = 2 << 20;
constexpr std::int64_t kTwoStepBytes = 256 << 10;
// The maximum number of bytes that one launch adds up in two steps. Up to this size the data and the three buffers of a
// mailbox stay in the L2 cache. With larger launches, an all-reduce takes three times as long.
constexpr std::int64_t kMostTwoStepBytes = 8 << 20;

LaunchShape shape_of(std::int64_t items) {
  return {.grid = dim3(static_cast<unsigned>(std::min(kMostBlocks, ceil_div(items, kPeerThreads)))),
          .block = dim3(kPeerThreads)};
}

// Returns how many units of a rank's data fit in a mailbox's buffer. A unit has `words` 4-byte words.
std::int64_t most_units(const Peers& peers, int words, bool two_steps) {
  const std::int64_t units = peers.buffer_words / words;
  if (!two_steps) return units / (peers.ranks - 1);
  // For n units of data, a rank's buffer takes (ranks - 1) · ⌈n / ranks⌉ + n units. The first argument of min() is a
  // value of n for which this number is at most `units`.
  return std::min((units - peers.ranks) * peers.ranks / (2 * peers.ranks - 1), kMostTwoStepBytes / (4 * words));
}

template <class T, int kWords>
Result<std::unique_ptr<BoundOp>> bind_reduce(std::shared_ptr<PeerExchange> exchange, const TensorView& x,
                                             ReduceWay way) {
  const Peers& peers = exchange->peers();
  const std::int64_t units = x.bytes() / (4 * kWords);
  const bool two_steps = way == ReduceWay::kTwoSteps;
  const std::int64_t most = most_units(peers, kWords, two_steps);
  auto* kernel = two_steps ? reduce_in_two_steps<T, kWords> : reduce_at_once<T, kWords>;
  TRY(load_code(kernel));
  auto* data = x.as<Unit<kWords>>();
  return make_cuda_op(
      "all_reduce",
      [=, exchange = std::move(exchange)](cudaStream_t stream) {
        const Peers& peers = exchange->peers();
        for (std::int64_t first = 0; first < units; first += most) {
          const std::int64_t count = std::min(most, units - first);
          launch_early(kernel, shape_of(two_steps ? ceil_div(count, peers.ranks) : count), stream, peers, data + first,
                       count);
        }
      },
      two_steps ? 1 : 0);
}

template <int kWords>
Result<std::unique_ptr<BoundOp>> bind_gather(std::shared_ptr<PeerExchange> exchange, const TensorView& x,
                                             const TensorView& y) {
  const std::int64_t columns = x.cols() * static_cast<std::int64_t>(ir::dtype_size(x.dtype)) / (4 * kWords);
  const std::int64_t rows = x.dim(0);
  const std::int64_t most_rows = most_units(exchange->peers(), kWords, false) / std::max<std::int64_t>(columns, 1);
  TRY(load_code(gather_columns<kWords>));
  const auto* from = x.as<Unit<kWords>>();
  auto* to = y.as<Unit<kWords>>();
  return make_cuda_op("all_gather", [=, exchange = std::move(exchange)](cudaStream_t stream) {
    const Peers& peers = exchange->peers();
    for (std::int64_t first = 0; first < rows; first += most_rows) {
      const std::int64_t count = std::min(most_rows, rows - first);
      launch_early(gather_columns<kWords>, shape_of(count * columns), stream, peers, from + first * columns,
                   to + first * columns * peers.ranks, count, columns);
    }
  });
}

}  // namespace

std::int64_t most_gathered_bytes(const Peers& peers) { return most_units(peers, 4, false) * 16; }

ReduceWay reduce_way(int ranks, std::int64_t bytes) {
  return bytes >= (ranks == 2 ? kTwoStepBytesOfTwo : kTwoStepBytes) ? ReduceWay::kTwoSteps : ReduceWay::kAtOnce;
}

Result<std::unique_ptr<BoundOp>> bind_peer_reduce(std::shared_ptr<PeerExchange> exchange, const TensorView& x,
                                                  ReduceWay way) {
  return dispatch_dtype(x.dtype, "all_reduce", [&]<class T>() {
    return x.bytes() % 16 == 0 ? bind_reduce<T, 4>(std::move(exchange), x, way)
                               : bind_reduce<T, 1>(std::move(exchange), x, way);
  });
}

Result<std::unique_ptr<BoundOp>> bind_peer_gather(std::shared_ptr<PeerExchange> exchange, const TensorView& x,
                                                  const TensorView& y) {
  const std::int64_t row_bytes = x.cols() * static_cast<std::int64_t>(ir::dtype_size(x.dtype));
  return row_bytes % 16 == 0 ? bind_gather<4>(std::move(exchange), x, y) : bind_gather<1>(std::move(exchange), x, y);
}

}  // namespace tessera::cuda
