// Binds moe_experts on Hopper (moe_hopper.cuh).
#include "tessera/ops/moe/moe_hopper.h"

#include <algorithm>
#include <array>

#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/cuda/cuda_shared_memory.h"
#include "tessera/ops/cuda/sm90a_code.h"
#include "tessera/ops/cuda/tensor_map.h"
#include "tessera/ops/moe/moe_hopper_packed.cuh"
#include "tessera/ops/moe/moe_order.cuh"
#include "tessera/ops/moe/moe_sum.cuh"

namespace tessera {
namespace {

using namespace cuda;
using namespace cuda::moe;

// Average rows of an expert from which on this kernel is used: at 16 a tile of 32 tokens, the narrowest, is half full.
// With fewer rows the weights are the bound for every kernel, and copying rows comes on top. 4-bit weights are unpacked
// once for all rows of a tile here, which pays from fewer rows on; 5 is the smallest number that was measured.
constexpr std::int64_t kRowsOfExpert = 16;
constexpr std::int64_t kPackedRowsOfExpert = 5;

Scratch scratch_of(const ExpertsProblem& p) { return lay_out(p, most_tiles(p, kHopperRows)); }

// Maps x, or the activated values: rows of k elements.
Result<CUtensorMap> map_of_rows(const ExpertsProblem& p, const std::byte* rows, std::int64_t k) {
  return encode_tensor_map(
      p.dtype, rows,
      std::array{TensorBox{.size = k, .stride = 1, .box = kHopperDepth},
                 TensorBox{.size = most_pairs(p), .stride = k, .box = kHopperStep / kHopperCluster}});
}

// Returns the number of clusters that the device runs at once.
template <bool kGateUp, class Kernel>
Result<LaunchShape> shape_of(const ExpertsProblem& p, Kernel* kernel, std::size_t shared_bytes) {
  constexpr int kOfBlock = kGateUp ? kHopperWeightRows / 2 : kHopperWeightRows;  // columns of y
  const std::int64_t items =
      most_tiles(p, kHopperRows) * ceil_div(kGateUp ? p.intermediate : p.hidden, kOfBlock * kHopperCluster);
  const int clusters = TRY(clusters_at_once(reinterpret_cast<const void*>(kernel), kHopperThreads, kHopperCluster,
                                            shared_bytes, "moe_experts"));
  const std::int64_t wanted = std::min<std::int64_t>(clusters, items);
  return LaunchShape{.grid = dim3(static_cast<unsigned>(wanted * kHopperCluster)),
                     .block = dim3(kHopperThreads),
                     .cluster = kHopperCluster};
}

// Makes the kernels' problems: both matmuls, with either kind of weights.
template <class T, bool kGateUp>
Result<HopperMatmul<T>> make_matmul(const ExpertsProblem& p, const Scratch& l, std::byte* scratch) {
  const std::int64_t k = kGateUp ? p.hidden : p.intermediate;
  const std::int64_t n = kGateUp ? p.intermediate : p.hidden;
  const std::int64_t w_rows = kGateUp ? 2 * n : n;
  const RowGroups weights{.matrices = p.experts,
                          .rows = w_rows,
                          .columns = p.mxfp4 ? k / 4 : k,
                          .first = kGateUp ? 8 : 16,
                          .second = kGateUp ? n : 8};
  return HopperMatmul<T>{
      .x = TRY(map_of_rows(p, scratch + (kGateUp ? l.rows : l.activated), k)),
      .w = TRY(encode_row_groups(p.dtype, kGateUp ? p.gate_up : p.down, weights, kHopperWeightRows, kHopperDepth)),
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

template <class T, bool kGateUp>
Result<HopperLaunch<HopperMatmul<T>>> plain_launch(const ExpertsProblem& p, const HopperMatmul<T>& matmul) {
  constexpr auto kKernel = hopper<T, kGateUp>;
  return HopperLaunch<HopperMatmul<T>>{kKernel, matmul, TRY(shape_of<kGateUp>(p, kKernel, kHopperShared<kGateUp>)),
                                       kHopperShared<kGateUp>};
}
template <class T, bool kGateUp>
Result<HopperLaunch<PackedMatmul<T>>> packed_launch(const ExpertsProblem& p, const HopperMatmul<T>& matmul) {
  constexpr auto kKernel = hopper_packed<T, kGateUp>;
  return HopperLaunch<PackedMatmul<T>>{kKernel,
                                       {matmul, kGateUp ? p.gate_up_scale : p.down_scale},
                                       TRY(shape_of<kGateUp>(p, kKernel, kPackedShared<kGateUp>)),
                                       kPackedShared<kGateUp>};
}

template <class T, bool kPaired, class Problem>
std::unique_ptr<BoundOp> make_op(const ExpertsProblem& p, const HopperLaunch<Problem>& gate_up,
                                 const HopperLaunch<Problem>& down) {
  const HopperMatmul<T>& matmul = [&]() -> const HopperMatmul<T>& {
    if constexpr (kPaired)
      return down.problem.matmul;
    else
      return down.problem;
  }();
  T* const rows = matmul.y;
  const Order order = matmul.order;
  return make_cuda_op("moe_experts, hopper", [=](cudaStream_t stream) {
    const std::int64_t packs = p.hidden / kPackSize<T>;
    for (std::int64_t begin = 0; begin < p.tokens; begin += kMostTokens) {
      const std::int64_t tokens = std::min(kMostTokens, p.tokens - begin);
      launch_order<kPaired ? RowsOfX::kPaired : RowsOfX::kCopied>(p, begin, kHopperRows, kHopperStep, order,
                                                                  reinterpret_cast<std::byte*>(rows), stream);
      launch_with(gate_up.kernel, gate_up.shape, gate_up.shared_bytes, /*early=*/true, stream, gate_up.problem);
      launch_with(down.kernel, down.shape, down.shared_bytes, /*early=*/true, stream, down.problem);
      launch_early(add_up<T, kPackSize<T>>, row_shape(tokens, packs), stream, rows, p.ids + begin * p.top_k,
                   order.place, p.weights + begin * p.top_k, reinterpret_cast<T*>(p.y) + begin * p.hidden, tokens,
                   packs, static_cast<int>(p.top_k), static_cast<int>(p.experts));
    }
  });
}

template <class T>
Result<std::unique_ptr<BoundOp>> bind_typed(const ExpertsProblem& p, std::byte* scratch) {
  const Scratch l = scratch_of(p);
  const HopperMatmul<T> gate_up = TRY((make_matmul<T, true>(p, l, scratch)));
  const HopperMatmul<T> down = TRY((make_matmul<T, false>(p, l, scratch)));
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    if (p.mxfp4)
      return make_op<T, true>(p, TRY((packed_launch<T, true>(p, gate_up))), TRY((packed_launch<T, false>(p, down))));
  }
  return make_op<T, false>(p, TRY((plain_launch<T, true>(p, gate_up))), TRY((plain_launch<T, false>(p, down))));
}

}  // namespace

bool hopper_serves(const ExpertsProblem& p) {
  const bool half = p.dtype == ir::DType::kBFloat16 || p.dtype == ir::DType::kFloat16;
  const auto fits = [](std::int64_t k) { return k % 64 == 0 && k <= kPackedBlock * kPackedMostBlocks; };
  const bool shaped = p.mxfp4 ? p.dtype == ir::DType::kBFloat16 && fits(p.hidden) && fits(p.intermediate)
                              : p.hidden % 16 == 0 && p.intermediate % 8 == 0;
  const std::int64_t rows = p.mxfp4 ? kPackedRowsOfExpert : kRowsOfExpert;
  return half && shaped && p.tokens * p.top_k >= rows * p.routed_experts &&
         runs_sm90a_code(reinterpret_cast<const void*>(hopper<__nv_bfloat16, true>));
}

std::size_t hopper_scratch_bytes(const ExpertsProblem& p) { return scratch_of(p).size; }

Result<std::unique_ptr<BoundOp>> bind_hopper(const ExpertsProblem& p, std::byte* scratch) {
  if (p.dtype == ir::DType::kBFloat16) return bind_typed<__nv_bfloat16>(p, scratch);
  return bind_typed<__half>(p, scratch);
}

}  // namespace tessera
