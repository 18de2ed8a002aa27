// Launches moe_experts' kernels on Hopper, for any kind of weights. The launches are order (the sort), gate and up,
// down, and sum.
#pragma once

#include <algorithm>
#include <array>

#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/cuda/cuda_shared_memory.h"
#include "tessera/ops/cuda/tensor_map.h"
#include "tessera/ops/moe/moe_hopper.cuh"
#include "tessera/ops/moe/moe_order.cuh"
#include "tessera/ops/moe/moe_sum.cuh"

namespace tessera::cuda::moe {

inline Scratch hopper_scratch(const ExpertsProblem& p) { return lay_out(p, most_tiles(p, kHopperRows)); }

// Makes the tensor map of an array of rows with k elements: x or the activated values.
inline Result<CUtensorMap> map_of_rows(const ExpertsProblem& p, const std::byte* rows, std::int64_t k) {
  return encode_tensor_map(
      p.dtype, rows,
      std::array{TensorBox{.size = k, .stride = 1, .box = kHopperDepth},
                 TensorBox{.size = most_pairs(p), .stride = k, .box = kHopperStep / kHopperCluster}});
}

// Returns the launch shape: as many blocks as the device runs at once, or fewer if there is less work.
template <bool kGateUp, class Kernel>
Result<LaunchShape> hopper_shape(const ExpertsProblem& p, Kernel* kernel, std::size_t shared_bytes) {
  constexpr int kOfBlock = kGateUp ? kHopperWeightRows / 2 : kHopperWeightRows;  // columns of y of one block
  const std::int64_t items =
      most_tiles(p, kHopperRows) * ceil_div(kGateUp ? p.intermediate : p.hidden, kOfBlock * kHopperCluster);
  const int clusters = TRY(clusters_at_once(reinterpret_cast<const void*>(kernel), kHopperThreads, kHopperCluster,
                                            shared_bytes, "moe_experts"));
  const std::int64_t wanted = std::min<std::int64_t>(clusters, items);
  return LaunchShape{.grid = dim3(static_cast<unsigned>(wanted * kHopperCluster)),
                     .block = dim3(kHopperThreads),
                     .cluster = kHopperCluster};
}

// Returns the number of bytes of a weight row with k columns.
template <bool kGateUp>
std::int64_t weight_bytes(const ExpertsProblem& p, std::int64_t k) {
  if (p.mxfp4) return k / 2;
  return p.quantised ? (kGateUp ? p.gate_up_matrix : p.down_matrix).row_bytes() : k * 2;
}

// Makes the arguments that the kernels for all kinds of weights share.
template <class T, bool kGateUp>
Result<HopperMatmul<T>> hopper_matmul(const ExpertsProblem& p, const Scratch& l, std::byte* scratch) {
  const std::int64_t k = kGateUp ? p.hidden : p.intermediate;
  const std::int64_t n = kGateUp ? p.intermediate : p.hidden;
  const std::int64_t w_rows = kGateUp ? 2 * n : n;
  const RowGroups weights{.matrices = p.experts,
                          .rows = w_rows,
                          .columns = weight_bytes<kGateUp>(p, k) / 2,
                          .first = kGateUp ? 8 : 16,
                          .second = kGateUp ? n : 8};
  const CUtensorMap x = TRY(map_of_rows(p, scratch + (kGateUp ? l.rows : l.activated), k));
  const CUtensorMap w =
      TRY(encode_row_groups(p.dtype, kGateUp ? p.gate_up : p.down, weights, kHopperWeightRows, kHopperDepth));
  return HopperMatmul<T>{.x = x,
                         .w = w,
                         .bias = reinterpret_cast<const T*>(kGateUp ? p.gate_up_bias : p.down_bias),
                         .y = reinterpret_cast<T*>(scratch + (kGateUp ? l.activated : l.rows)),
                         .n = static_cast<int>(n),
                         .k = static_cast<int>(k),
                         .w_rows = static_cast<int>(w_rows),
                         .activation = p.activation,
                         .limit = p.limit,
                         .order = l.order(scratch)};
}

// A kernel and its launch arguments.
template <class Problem>
struct HopperLaunch {
  void (*kernel)(Problem);
  Problem problem;
  LaunchShape shape;
  std::size_t shared_bytes;
};

// Binds the launches. The kernels expect x in the form and the column order of kRows.
template <class T, RowsOfX kRows, class Problem>
std::unique_ptr<BoundOp> make_hopper(const ExpertsProblem& p, const HopperLaunch<Problem>& gate_up,
                                     const HopperLaunch<Problem>& down) {
  const HopperMatmul<T>& matmul = [&]() -> const HopperMatmul<T>& {
    if constexpr (std::is_same_v<Problem, HopperMatmul<T>>)
      return down.problem;
    else
      return down.problem.matmul;
  }();
  T* const rows = matmul.y;
  const Order order = matmul.order;
  return make_cuda_op("moe_experts, hopper", [=](cudaStream_t stream) {
    const std::int64_t packs = p.hidden / kPackSize<T>;
    for (std::int64_t begin = 0; begin < p.tokens; begin += kMostTokens) {
      const std::int64_t tokens = std::min(kMostTokens, p.tokens - begin);
      launch_order<kRows>(p, begin, kHopperRows, kHopperStep, order, reinterpret_cast<std::byte*>(rows), stream);
      launch_with(gate_up.kernel, gate_up.shape, gate_up.shared_bytes, /*early=*/true, stream, gate_up.problem);
      launch_with(down.kernel, down.shape, down.shared_bytes, /*early=*/true, stream, down.problem);
      launch_early(add_up<T, kPackSize<T>>, row_shape(tokens, packs), stream, rows, p.ids + begin * p.top_k,
                   order.place, p.weights + begin * p.top_k, reinterpret_cast<T*>(p.y) + begin * p.hidden, tokens,
                   packs, static_cast<int>(p.top_k), static_cast<int>(p.experts));
    }
  });
}

}  // namespace tessera::cuda::moe
