// Binds moe_experts on Hopper (moe_hopper.cuh).
#include "tessera/ops/moe_hopper.h"

#include <algorithm>
#include <array>

#include "tessera/device/alignment.h"
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

constexpr std::int64_t kTokensAtOnce = 4096;  // bounds the scratch
// Rows that an expert has on average from which on this way is taken: a tile of 32 tokens, its narrowest, then is half
// full. With fewer rows weights are the floor either way, and the rows' copies come on top.
constexpr std::int64_t kRowsOfExpert = 16;
constexpr std::int64_t kOrderBlocks = 128;  // each counts all pairs: about one to a multiprocessor

std::int64_t tokens_at_once(const ExpertsProblem& p) { return std::min(p.tokens, kTokensAtOnce); }
std::int64_t pairs_at_once(const ExpertsProblem& p) { return tokens_at_once(p) * p.top_k; }
std::int64_t most_tiles(const ExpertsProblem& p) {
  return std::min(p.experts, pairs_at_once(p)) + pairs_at_once(p) / kHopperRows;
}

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

// Where the parts of the scratch begin, in bytes.
struct Layout {
  std::size_t size = 0;
  std::size_t rows = 0;       // T[pairs, H]: of x in the order of experts; then what down gives
  std::size_t activated = 0;  // T[pairs, I]
  std::size_t num_tiles = 0;  // the next three: Order
  std::size_t tiles = 0;
  std::size_t place = 0;
};

Layout lay_out(const ExpertsProblem& p) {
  Layout l;
  const auto take = [&](std::int64_t count, std::size_t bytes) {
    const std::size_t at = l.size;
    l.size += align_up(static_cast<std::size_t>(count) * bytes);
    return at;
  };
  const std::size_t element = ir::dtype_size(p.dtype);
  l.rows = take(pairs_at_once(p) * p.hidden, element);
  l.activated = take(pairs_at_once(p) * p.intermediate, element);
  l.num_tiles = take(1, sizeof(int));
  l.tiles = take(most_tiles(p), sizeof(Tile));
  l.place = take(pairs_at_once(p), sizeof(int));
  return l;
}

// x or activated values: rows of k.
Result<CUtensorMap> map_of_rows(const ExpertsProblem& p, const std::byte* rows, std::int64_t k) {
  return encode_tensor_map(
      p.dtype, rows,
      std::array{TensorBox{.size = k, .stride = 1, .box = kHopperDepth},
                 TensorBox{.size = pairs_at_once(p), .stride = k, .box = kHopperStep / kHopperCluster}});
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
  const Layout l = lay_out(p);
  const std::int64_t h = p.hidden;
  const std::int64_t n = p.intermediate;
  const Order order{.num_tiles = reinterpret_cast<int*>(scratch + l.num_tiles),
                    .tiles = reinterpret_cast<Tile*>(scratch + l.tiles),
                    .place = reinterpret_cast<int*>(scratch + l.place),
                    .row = nullptr};
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
    return most_tiles(p) * ceil_div(columns, of_block * kHopperCluster);
  };
  const LaunchShape gate_up_shape = TRY(
      shape_of(reinterpret_cast<const void*>(hopper<T, true>), kHopperShared<true>, items(n, kHopperWeightRows / 2)));
  const LaunchShape down_shape =
      TRY(shape_of(reinterpret_cast<const void*>(hopper<T, false>), kHopperShared<false>, items(h, kHopperWeightRows)));
  return make_cuda_op("moe_experts, hopper", [=](cudaStream_t stream) {
    const auto top_k = static_cast<int>(p.top_k);
    const auto experts = static_cast<int>(p.experts);
    const std::int64_t packs = h / kPackSize<T>;
    for (std::int64_t begin = 0; begin < p.tokens; begin += kTokensAtOnce) {
      const std::int64_t tokens = std::min(kTokensAtOnce, p.tokens - begin);
      const T* const x = reinterpret_cast<const T*>(p.x) + begin * h;
      T* const y = reinterpret_cast<T*>(p.y) + begin * h;
      const std::int32_t* const ids = p.ids + begin * p.top_k;
      const LaunchShape order_shape{.grid = dim3(static_cast<unsigned>(std::min(tokens, kOrderBlocks))),
                                    .block = dim3(kOrderThreads)};
      launch_early(order_rows, order_shape, stream, reinterpret_cast<const uint4*>(x), ids, static_cast<int>(tokens),
                   top_k, experts, static_cast<int>(packs), kHopperRows, kHopperStep, order,
                   reinterpret_cast<uint4*>(rows));
      launch_with(hopper<T, true>, gate_up_shape, kHopperShared<true>, /*early=*/true, stream, gate_up);
      launch_with(hopper<T, false>, down_shape, kHopperShared<false>, /*early=*/true, stream, down);
      launch_early(add_up<T, kPackSize<T>>, row_shape(tokens, packs), stream, rows, ids, order.place,
                   p.weights + begin * p.top_k, y, tokens, packs, top_k, experts);
    }
  });
}

}  // namespace

bool hopper_serves(const ExpertsProblem& p) {
  const bool half = p.dtype == ir::DType::kBFloat16 || p.dtype == ir::DType::kFloat16;
  return half && p.hidden % 16 == 0 && p.intermediate % 8 == 0 && p.tokens * p.top_k >= kRowsOfExpert * p.experts &&
         device_can();
}

std::size_t hopper_scratch_bytes(const ExpertsProblem& p) { return lay_out(p).size; }

Result<std::unique_ptr<BoundOp>> bind_hopper(const ExpertsProblem& p, std::byte* scratch) {
  if (p.dtype == ir::DType::kBFloat16) return bind_typed<__nv_bfloat16>(p, scratch);
  return bind_typed<__half>(p, scratch);
}

}  // namespace tessera
