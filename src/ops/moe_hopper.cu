// Binds moe_experts on Hopper (moe_hopper.cuh).
#include "tessera/ops/moe_hopper.h"

#include <algorithm>
#include <array>

#include "tessera/ops/cuda_op.h"
#include "tessera/ops/cuda_shared_memory.h"
#include "tessera/ops/moe_hopper.cuh"
#include "tessera/ops/moe_order.cuh"
#include "tessera/ops/moe_sum.cuh"
#include "tessera/ops/tensor_map.h"

namespace tessera {
namespace {

using namespace cuda;
using namespace cuda::moe;

// Rows that an expert has on average from which on this way is taken: a tile of 32 tokens, its narrowest, then is half
// full. With fewer rows weights are the floor either way, and the rows' copies come on top.
constexpr std::int64_t kRowsOfExpert = 16;
// Whether the current device runs the code for sm_90a, which no other architecture does.
bool device_can() {
#ifdef TESSERA_WITH_SM90A
  cudaFuncAttributes code{};
  if (cudaFuncGetAttributes(&code, reinterpret_cast<const void*>(hopper<__nv_bfloat16, true>)) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());  // another way is taken; a device that fails is found by its launch
    return false;
  }
  return code.binaryVersion == 90 && code.ptxVersion == 90;
#else
  return false;
#endif
}

Scratch scratch_of(const ExpertsProblem& p) { return lay_out(p, most_tiles(p, kHopperRows)); }

// x or activated values: rows of k.
Result<CUtensorMap> map_of_rows(const ExpertsProblem& p, const std::byte* rows, std::int64_t k) {
  return encode_tensor_map(
      p.dtype, rows,
      std::array{TensorBox{.size = k, .stride = 1, .box = kHopperDepth},
                 TensorBox{.size = most_pairs(p), .stride = k, .box = kHopperStep / kHopperCluster}});
}

// Weights in groups of 16 rows: 8, and the 8 that are `second` rows further. A group begins `first` rows after the one
// before it.
Result<CUtensorMap> map_of_weights(const ExpertsProblem& p, const std::byte* weights, std::int64_t rows, std::int64_t k,
                                   std::int64_t first, std::int64_t second) {
  return encode_tensor_map(
      p.dtype, weights,
      std::array{TensorBox{.size = k, .stride = 1, .box = kHopperDepth}, TensorBox{.size = 8, .stride = k, .box = 8},
                 TensorBox{.size = 2, .stride = second * k, .box = 2},
                 TensorBox{.size = rows / 16, .stride = first * k, .box = kHopperWeightRows / 16},
                 TensorBox{.size = p.experts, .stride = rows * k, .box = 1}});
}

// As many clusters as the device runs at once.
Result<LaunchShape> shape_of(const void* kernel, std::size_t shared_bytes, std::int64_t items) {
  const int clusters = TRY(clusters_at_once(kernel, kHopperThreads, kHopperCluster, shared_bytes, "moe_experts"));
  const std::int64_t wanted = std::min<std::int64_t>(clusters, items);
  return LaunchShape{.grid = dim3(static_cast<unsigned>(wanted * kHopperCluster)),
                     .block = dim3(kHopperThreads),
                     .cluster = kHopperCluster};
}

template <class T>
Result<std::unique_ptr<BoundOp>> bind_typed(const ExpertsProblem& p, std::byte* scratch) {
  const Scratch l = scratch_of(p);
  const std::int64_t h = p.hidden;
  const std::int64_t n = p.intermediate;
  const Order order = l.order(scratch);
  T* const rows = reinterpret_cast<T*>(scratch + l.rows);
  const HopperMatmul<T> gate_up{.x = TRY(map_of_rows(p, scratch + l.rows, h)),
                                .w = TRY(map_of_weights(p, p.gate_up, 2 * n, h, 8, n)),
                                .bias = reinterpret_cast<const T*>(p.gate_up_bias),
                                .y = reinterpret_cast<T*>(scratch + l.activated),
                                .n = static_cast<int>(n),
                                .k = static_cast<int>(h),
                                .w_rows = static_cast<int>(2 * n),
                                .activation = p.activation,
                                .limit = p.limit,
                                .order = order};
  const HopperMatmul<T> down{.x = TRY(map_of_rows(p, scratch + l.activated, n)),
                             .w = TRY(map_of_weights(p, p.down, h, n, 16, 8)),
                             .bias = reinterpret_cast<const T*>(p.down_bias),
                             .y = rows,
                             .n = static_cast<int>(h),
                             .k = static_cast<int>(n),
                             .w_rows = static_cast<int>(h),
                             .activation = p.activation,
                             .limit = p.limit,
                             .order = order};
  const auto items = [&](std::int64_t columns, int of_block) {
    return most_tiles(p, kHopperRows) * ceil_div(columns, of_block * kHopperCluster);
  };
  const LaunchShape gate_up_shape = TRY(
      shape_of(reinterpret_cast<const void*>(hopper<T, true>), kHopperShared<true>, items(n, kHopperWeightRows / 2)));
  const LaunchShape down_shape =
      TRY(shape_of(reinterpret_cast<const void*>(hopper<T, false>), kHopperShared<false>, items(h, kHopperWeightRows)));
  return make_cuda_op("moe_experts, hopper", [=](cudaStream_t stream) {
    const std::int64_t packs = h / kPackSize<T>;
    for (std::int64_t begin = 0; begin < p.tokens; begin += kMostTokens) {
      const std::int64_t tokens = std::min(kMostTokens, p.tokens - begin);
      launch_order<RowsOfX::kCopied>(p, begin, kHopperRows, kHopperStep, order, reinterpret_cast<std::byte*>(rows),
                                     stream);
      launch_with(hopper<T, true>, gate_up_shape, kHopperShared<true>, /*early=*/true, stream, gate_up);
      launch_with(hopper<T, false>, down_shape, kHopperShared<false>, /*early=*/true, stream, down);
      launch_early(add_up<T, kPackSize<T>>, row_shape(tokens, packs), stream, rows, p.ids + begin * p.top_k,
                   order.place, p.weights + begin * p.top_k, reinterpret_cast<T*>(p.y) + begin * h, tokens, packs,
                   static_cast<int>(p.top_k), static_cast<int>(p.experts));
    }
  });
}

}  // namespace

bool hopper_serves(const ExpertsProblem& p) {
  const bool half = p.dtype == ir::DType::kBFloat16 || p.dtype == ir::DType::kFloat16;
  return half && p.hidden % 16 == 0 && p.intermediate % 8 == 0 && p.tokens * p.top_k >= kRowsOfExpert * p.experts &&
         device_can();
}

std::size_t hopper_scratch_bytes(const ExpertsProblem& p) { return scratch_of(p).size; }

Result<std::unique_ptr<BoundOp>> bind_hopper(const ExpertsProblem& p, std::byte* scratch) {
  if (p.dtype == ir::DType::kBFloat16) return bind_typed<__nv_bfloat16>(p, scratch);
  return bind_typed<__half>(p, scratch);
}

}  // namespace tessera
