// Runs all_reduce and the following add_rms_norm in one launch, for the few rows of a decode step. Each block has one
// row. The block sends its row, adds up the rows of all ranks and the residual, and normalises the sum in registers,
// without reading the sum back from memory.
#include <utility>

#include "tessera/ops/collective/peer_collectives.h"
#include "tessera/ops/collective/peer_kernels.cuh"
#include "tessera/ops/contract/norm_form.h"
#include "tessera/ops/cuda/cuda_norm.cuh"
#include "tessera/ops/cuda/cuda_op.h"

namespace tessera::cuda {
namespace {

constexpr int kHeld = 2;  // maximum number of 16-byte units of a row that a thread holds

template <class T>
struct PeerNorm {
  const Unit<4>* x;         // [rows, units], this rank's term of the sum
  const Unit<4>* residual;  // [rows, units]
  const Unit<4>* w;         // [units]
  Unit<4>* y;               // [rows, units]
  Unit<4>* sum;             // [rows, units], T(T(Σ over ranks of x) + residual), where T() rounds
  int units;
  float eps;
  NormForm form;
};

template <class T, int N>
__device__ const Pack<T, N>& values_of(const Unit<4>& unit) {
  return reinterpret_cast<const Pack<T, N>&>(unit);
}
template <class T, int N>
__device__ Unit<4> unit_of(const Pack<T, N>& values) {
  return reinterpret_cast<const Unit<4>&>(values);
}

template <class T>
__global__ void __launch_bounds__(kPeerThreads, 1)
    reduce_and_norm(const __grid_constant__ Peers peers, const PeerNorm<T> norm) {
  constexpr int N = kPackSize<T>;
  __shared__ float scratch[kWarp];
  const std::int64_t rows = gridDim.x;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * norm.units;
  const std::int64_t all = rows * norm.units;
  const auto column = [](int h) { return static_cast<int>(threadIdx.x) + h * kPeerThreads; };
  Unit<4> residual[kHeld];
  Unit<4> w[kHeld];
  let_next_begin();
  wait_for_previous();
  const Turn turn = begin_turn(peers);
  Unit<4> mine[kHeld];
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    if (column(h) >= norm.units) continue;
    mine[h] = present(norm.x[row + column(h)]);
    send_to_others(peers, turn, all, row + column(h), mine[h]);
  }
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    if (column(h) >= norm.units) continue;
    residual[h] = norm.residual[row + column(h)];
    w[h] = norm.w[column(h)];
  }
  clear_last_turn(peers, turn);

  float squares = 0;
  Pack<T, N> held[kHeld];
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    if (column(h) >= norm.units) continue;
    Unit<4> of_rank[kMostPeers];
    receive(peers, turn, all, row + column(h), mine[h], of_rank);
    const Unit<4> reduced = sum_of_ranks<T, 4>(of_rank, peers.ranks);
    held[h] = added(values_of<T, N>(reduced), values_of<T, N>(residual[h]));
    norm.sum[row + column(h)] = unit_of(held[h]);
    squares += sum_of_squares(held[h]);
  }
  const float scale = rms_scale(block_sum(squares, scratch), static_cast<std::int64_t>(norm.units) * N, norm.eps);
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    if (column(h) >= norm.units) continue;
    norm.y[row + column(h)] = unit_of(normalised(held[h], values_of<T, N>(w[h]), scale, norm.form));
  }
  end_turn(peers, turn, (peers.ranks - 1) * all * 4);
}

template <class T>
Result<std::unique_ptr<BoundOp>> bind_of(const BindArgs& reduce, const BindArgs& norm) {
  const TensorView x = reduce.operands[0];
  const std::int64_t row_bytes = x.cols() * static_cast<std::int64_t>(sizeof(T));
  if (row_bytes % 16 != 0 || row_bytes > 16 * kHeld * kPeerThreads) return std::unique_ptr<BoundOp>();
  // If a row has more units of 16 bytes than the block has threads, this kernel adds the squares in another order than
  // add_rms_norm. Larger forwards run add_rms_norm, so a row's bits would depend on the size of the forward.
  // Deterministic forwards therefore do not use this kernel for such rows.
  if (reduce.context.limits.deterministic && row_bytes > 16 * kPeerThreads) return std::unique_ptr<BoundOp>();
  std::shared_ptr<PeerExchange> exchange = TRY(PeerExchange::of(*reduce.context.communicator, reduce.device));
  TRY(load_code(reduce_and_norm<T>));
  const PeerNorm<T> args{.x = x.as<Unit<4>>(),
                         .residual = norm.operands[1].as<Unit<4>>(),
                         .w = norm.operands[2].as<Unit<4>>(),
                         .y = norm.results[0].as<Unit<4>>(),
                         .sum = norm.results[1].as<Unit<4>>(),
                         .units = static_cast<int>(row_bytes / 16),
                         .eps = static_cast<float>(norm.node.attribute_or("eps", 0.0)),
                         .form = norm_form(norm.node)};
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(x.rows())), .block = dim3(kPeerThreads)};
  return make_cuda_op("all_reduce and add_rms_norm", [=, exchange = std::move(exchange)](cudaStream_t stream) {
    launch_early(reduce_and_norm<T>, shape, stream, exchange->peers(), args);
  });
}

// Returns null for one rank, because one rank exchanges nothing, and add_rms_norm has its own kernel. Also returns null
// if some ranks are in other processes, because this process cannot access their memory.
Result<std::unique_ptr<BoundOp>> bind(std::span<const BindArgs> calls) {
  const Communicator* communicator = calls[0].context.communicator;
  if (communicator == nullptr || communicator->ranks() == 1 || communicator->spans_processes())
    return std::unique_ptr<BoundOp>();
  switch (calls[0].operands[0].dtype) {
    case ir::DType::kBFloat16: return bind_of<__nv_bfloat16>(calls[0], calls[1]);
    case ir::DType::kFloat16: return bind_of<__half>(calls[0], calls[1]);
    default: return std::unique_ptr<BoundOp>();
  }
}

}  // namespace

// Each row has a block of 512 threads. With at most 128 rows, all blocks run on the device at once.
const JoinedKernelDef kPeerNorm{.ops = {"all_reduce", "add_rms_norm"}, .name = "peers", .most_rows = 128, .bind = bind};

}  // namespace tessera::cuda
