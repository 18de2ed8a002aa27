// Binds the kernel of linear_split.cuh, whose blocks split a linear's k among themselves. The kernel computes a linear
// alone, or a linear and the gate after it (silu_mul or gelu_mul).
#include "tessera/ops/linear/linear_split.cuh"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/cuda/cuda_shared_memory.h"
#include "tessera/ops/cuda/sm90a_code.h"
#include "tessera/ops/cuda/tensor_map.h"
#include "tessera/ops/linear/linear_cuda.h"

namespace tessera {
namespace {

using namespace cuda;
using namespace cuda::split_linear;

// With kSharedBytesOfTwo bytes of shared memory for each block, two blocks fit on a multiprocessor. With
// kSharedBytesOfOne only one fits. The kernel uses kSharedBytesOfOne if all clusters can run at once with each block on
// a multiprocessor of its own. With kSharedBytesOfTwo, the multiprocessors on which the preceding kernel ends first
// would take two blocks each, and others would stay idle. An H200 has 132 multiprocessors, but can run at most 30
// clusters of four blocks if each block has its own multiprocessor.
constexpr int kSharedBytesOfTwo = 112 * 1024;
constexpr int kSharedBytesOfOne = 116 * 1024;

// Returns the number of blocks that share a tile. It is the greatest power of two, at most kMostBlocks, for which each
// block has its own multiprocessor and at least one stage. There is one exception: the number is two instead of one if
// k is at least 4096 and there are at most as many tiles as multiprocessors. In this case two blocks may share a
// multiprocessor, but with such a long k each of them still keeps enough loads in flight. The number does not depend on
// m.
int blocks_of_tile(const LinearProblem& p) {
  constexpr std::int64_t kLong = 4096;
  const std::int64_t tiles = ceil_div(p.n, kWeightRows);
  int blocks = 1;
  while (blocks < kMostBlocks && 2 * blocks * tiles <= p.workers && p.k >= 2 * blocks * kDepth) blocks *= 2;
  return blocks == 1 && tiles <= p.workers && p.k >= kLong ? 2 : blocks;
}

// Returns whether y has few enough tiles for this kernel. With more tiles its blocks would run in several rounds, and
// the last round would not fill the multiprocessors. cuBLASLt's blocks are persistent, so they have no such rounds.
bool is_worth_splitting(const LinearProblem& p) { return ceil_div(p.n, kWeightRows) <= 2 * p.workers; }

Result<CUtensorMap> map_of_weights(const LinearProblem& p, Gate gate) {
  if (gate == Gate::kNone)
    return encode_tensor_map(p.dtype, p.w,
                             std::array{TensorBox{.size = p.k, .stride = 1, .box = kDepth},
                                        TensorBox{.size = p.n, .stride = p.k, .box = kWeightRows}});
  return encode_row_groups(p.dtype, p.w, {.matrices = 1, .rows = p.n, .columns = p.k, .first = 8, .second = p.n / 2},
                           kWeightRows, kDepth);
}

// What a linear computes besides x · wᵀ.
struct Extras {
  Gate gate = Gate::kNone;
  const AdapterShrinkArgs* adapters = nullptr;  // null: none
};

// Returns how many tiles of A the rows of x can need.
std::int64_t most_needed_tiles(const AdapterShrinkArgs& in) {
  const std::int64_t values = std::int64_t{in.modules} * in.rank;
  return ceil_div(std::min<std::int64_t>(in.rows, in.num_slots) * values, kWeightRows);
}

Result<ShrinkRows> shrink_rows(ir::DType dtype, const AdapterShrinkArgs& in) {
  const std::int64_t rows = std::int64_t{in.num_slots} * in.modules * in.rank;
  const CUtensorMap a =
      TRY(encode_tensor_map(dtype, in.a,
                            std::array{TensorBox{.size = in.cols, .stride = 1, .box = kDepth},
                                       TensorBox{.size = rows, .stride = in.cols, .box = kWeightRows}}));
  return ShrinkRows{.a = a, .in = in, .tiles = static_cast<int>(ceil_div(rows, kWeightRows))};
}

template <class T, int kN, int kBlocks, class Adapters>
Result<std::unique_ptr<BoundOp>> launch(const char* name, const SplitLinear<T>& bound, const Adapters& adapters,
                                        std::int64_t tiles, std::int64_t needed_tiles) {
  constexpr auto kKernel = linear_split<T, kN, kBlocks, Adapters>;
  const auto* const kernel = reinterpret_cast<const void*>(kKernel);
  const int clusters = TRY(clusters_at_once(kernel, kThreads, kBlocks, kSharedBytesOfOne, name));
  const std::size_t bytes = needed_tiles <= clusters ? kSharedBytesOfOne : kSharedBytesOfTwo;
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(tiles * kBlocks)), .block = dim3(kThreads), .cluster = kBlocks};
  return make_cuda_op(
      name, [=](cudaStream_t stream) { launch_with(kKernel, shape, bytes, /*early=*/true, stream, bound, adapters); });
}

template <class T, int kN, int kBlocks>
Result<std::unique_ptr<BoundOp>> make(const char* name, const LinearProblem& p, const Extras& extras, std::byte* y) {
  constexpr int kAlignment = 1024;
  static_assert(kAlignment + kSumBytes<kN> <= kSharedBytesOfTwo);
  const CUtensorMap x = TRY(encode_tensor_map(p.dtype, p.x,
                                              std::array{TensorBox{.size = p.k, .stride = 1, .box = kDepth},
                                                         TensorBox{.size = p.m, .stride = p.k, .box = kN}}));
  const CUtensorMap w = TRY(map_of_weights(p, extras.gate));
  const SplitLinear<T> bound{.x = x,
                             .w = w,
                             .bias = reinterpret_cast<const T*>(p.bias),
                             .residual = reinterpret_cast<const T*>(p.residual),
                             .y = reinterpret_cast<T*>(y),
                             .m = static_cast<int>(p.m),
                             .n = static_cast<int>(extras.gate == Gate::kNone ? p.n : p.n / 2),
                             .k = static_cast<int>(p.k),
                             .stages = std::min(kMostStages, (kSharedBytesOfTwo - kAlignment) / kStageBytes<kN>),
                             .gate = extras.gate};
  const std::int64_t tiles = ceil_div(p.n, kWeightRows);
  if (extras.adapters == nullptr) return launch<T, kN, kBlocks>(name, bound, NoShrink{}, tiles, tiles);
  const ShrinkRows adapters = TRY(shrink_rows(p.dtype, *extras.adapters));
  return launch<T, kN, kBlocks>(name, bound, adapters, tiles + adapters.tiles,
                                tiles + most_needed_tiles(*extras.adapters));
}

// Returns the number of blocks of a tile. If two blocks of each tile fill the multiprocessors, those of the tiles of A
// have no place beside them. Then three blocks, two of which may share a multiprocessor, divide the work more evenly.
int blocks_of_tile(const LinearProblem& p, const Extras& extras) {
  const int blocks = blocks_of_tile(p);
  if (extras.adapters == nullptr || blocks != 2 || p.k < 3 * kDepth) return blocks;
  const std::int64_t tiles = ceil_div(p.n, kWeightRows);
  return 2 * tiles <= p.workers && 2 * (tiles + most_needed_tiles(*extras.adapters)) > p.workers ? 3 : 2;
}

template <class T, int kN>
Result<std::unique_ptr<BoundOp>> make(const char* name, const LinearProblem& p, const Extras& extras, std::byte* y) {
  switch (blocks_of_tile(p, extras)) {
    case 1: return make<T, kN, 1>(name, p, extras, y);
    case 2: return make<T, kN, 2>(name, p, extras, y);
    case 3: return make<T, kN, 3>(name, p, extras, y);
    default: return make<T, kN, 4>(name, p, extras, y);
  }
}

Result<std::unique_ptr<BoundOp>> make(const char* name, const LinearProblem& p, const Extras& extras, std::byte* y) {
  const bool is_short = p.m <= 32;
  if (p.dtype == ir::DType::kBFloat16)
    return is_short ? make<__nv_bfloat16, 32>(name, p, extras, y) : make<__nv_bfloat16, 64>(name, p, extras, y);
  return is_short ? make<__half, 32>(name, p, extras, y) : make<__half, 64>(name, p, extras, y);
}

}  // namespace

bool can_split(const BindArgs& args) {
  const LinearProblem p = make_linear_problem(args);
  return allows_own_kernels(args, p) && args.operands[1].is_weight && p.m > 1 && p.m <= kMostSplitRows &&
         p.k % 8 == 0 && p.n % 8 == 0 && is_worth_splitting(p) && is_aligned(p.bias) && is_aligned(p.residual) &&
         is_aligned(p.y) &&
         runs_sm90a_code(reinterpret_cast<const void*>(linear_split<__nv_bfloat16, 32, 1, NoShrink>));
}

Result<std::unique_ptr<BoundOp>> bind_split(const LinearProblem& p) { return make("linear, k split", p, {}, p.y); }

Result<std::unique_ptr<BoundOp>> bind_split_gated(std::span<const BindArgs> calls) {
  const LinearProblem p = make_linear_problem(calls[0]);
  std::byte* const y = calls[1].results[0].data.raw();
  if (!can_split(calls[0]) || p.residual != nullptr || p.n % 16 != 0 || !is_aligned(y))
    return std::unique_ptr<BoundOp>();
  return make("linear and gate, k split", p, {.gate = gate_of(calls[1].node)}, y);
}

Result<std::unique_ptr<BoundOp>> bind_split_shrink(std::span<const BindArgs> calls) {
  const AdapterShrinkArgs adapters = adapter_shrink_args(calls[0]);
  const LinearProblem p = make_linear_problem(calls[1]);
  if (can_stream(calls[1]) || !can_split(calls[1]) || !is_aligned(adapters.a)) return std::unique_ptr<BoundOp>();
  return make("linear and adapter_shrink, k split", p, {.adapters = &adapters}, p.y);
}

}  // namespace tessera
