// moe_experts on CUDA. bind() chooses one of six algorithms, by sizes and types alone:
//
//   one token  4-bit weights, one token, short rows, Hopper (moe_one_token.h): gate and up, down and sum
//   streamed   16-bit types, a decode's tokens, Hopper (moe_streamed.cuh): gate and up, down and sum
//   few rows   16-bit types, few tokens (moe_few_rows.cuh): gate and up, down, sum
//   hopper     16-bit types, many rows an expert, Hopper (moe_hopper.cuh): order, gate and up, down, sum
//   grouped    16-bit types (moe_grouped.cuh): order, gate and up, down, sum
//   plain      float32 and odd sizes (moe_plain.cuh): the same launches as grouped
//
// With bfloat16, the type in which models with 4-bit weights compute, 4-bit weights take any of these but the plain
// one; with other types they take the plain one. A deterministic forward takes one of the last two, because in the
// others the order of sums depends on the batch; so a row's bits do not depend on other rows. Every launch has a fixed
// shape; the router's choice is read from device memory.
#include <algorithm>

#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/cuda/cuda_shared_memory.h"
#include "tessera/ops/moe/moe_experts.cuh"
#include "tessera/ops/moe/moe_few_rows.cuh"
#include "tessera/ops/moe/moe_grouped.cuh"
#include "tessera/ops/moe/moe_hopper.h"
#include "tessera/ops/moe/moe_one_token.h"
#include "tessera/ops/moe/moe_order.cuh"
#include "tessera/ops/moe/moe_plain.cuh"
#include "tessera/ops/moe/moe_route.h"
#include "tessera/ops/moe/moe_streamed.h"
#include "tessera/ops/moe/moe_sum.cuh"

namespace tessera {
namespace cuda::moe {
namespace {

constexpr std::int64_t kManyRows = 128;  // rows of a tile in a large prefill
constexpr std::int64_t kSomeRows = 64;   // rows of other tiles
static_assert(kSomeRows == kPlainRows);

enum class Way { kNothing, kOneToken, kStreamed, kFewRows, kGrouped, kHopper, kPlain };

Way choose(const ExpertsProblem& p, bool deterministic) {
  if (p.tokens == 0) return Way::kNothing;
  const bool whole_chunks = p.hidden % 8 == 0 && p.intermediate % 8 == 0;
  if (p.dtype == ir::DType::kFloat32 || !whole_chunks) return Way::kPlain;
  if (p.mxfp4 && p.dtype != ir::DType::kBFloat16) return Way::kPlain;
  if (deterministic) return Way::kGrouped;
  if (one_token_serves(p)) return Way::kOneToken;
  if (streamed_serves(p)) return Way::kStreamed;
  if (p.tokens * p.top_k <= kMostPairs) return Way::kFewRows;
  return hopper_serves(p) ? Way::kHopper : Way::kGrouped;
}

// Returns kManyRows if a token's even share of rows fills tiles of that size.
std::int64_t tile_rows(const ExpertsProblem& p, Way way) {
  return way == Way::kGrouped && most_pairs(p) >= kManyRows * p.routed_experts ? kManyRows : kSomeRows;
}
std::int64_t tiles_of(const ExpertsProblem& p, Way way) { return most_tiles(p, tile_rows(p, way)); }

Scratch scratch_of(const ExpertsProblem& p, Way way) {
  if (way == Way::kNothing) return {};
  return lay_out(p, way == Way::kFewRows ? 0 : tiles_of(p, way));
}

// The operator's launches for some of its tokens, in the form that all algorithms use.
template <class T>
struct Launches {
  Matmul<T> gate_up;
  Matmul<T> down;
  Order order;
  const std::int32_t* ids;
  const float* weights;
  T* y;
  std::int64_t tokens;
  std::int64_t pairs;
  int tile_rows;
};

template <class T>
Launches<T> launches_of(const ExpertsProblem& p, Way way, std::byte* scratch, std::int64_t begin) {
  const Scratch l = scratch_of(p, way);
  const std::int64_t tokens = std::min(kMostTokens, p.tokens - begin);
  const auto at = [&](std::size_t offset) { return reinterpret_cast<T*>(scratch + offset); };
  const auto [gate_up, down] = matmuls_of<T>(p, begin, at(l.activated), at(l.rows));
  return {.gate_up = gate_up,
          .down = down,
          .order = l.order(scratch),
          .ids = p.ids + begin * p.top_k,
          .weights = p.weights + begin * p.top_k,
          .y = reinterpret_cast<T*>(p.y) + begin * p.hidden,
          .tokens = tokens,
          .pairs = tokens * p.top_k,
          .tile_rows = static_cast<int>(tile_rows(p, way))};
}

template <class T, int N>
void launch_add_up(const Launches<T>& l, const int* place, cudaStream_t stream) {
  const std::int64_t packs = l.down.n / N;
  launch_early(add_up<T, N>, row_shape(l.tokens, packs), stream, l.down.y, l.ids, place, l.weights, l.y, l.tokens,
               packs, l.down.top_k, l.down.experts);
}

// Makes only the list: these algorithms find a row by its token.
template <class T>
void launch_sort(const ExpertsProblem& p, std::int64_t begin, const Launches<T>& l, cudaStream_t stream) {
  launch_order<RowsOfX::kListed>(p, begin, l.tile_rows, l.tile_rows, l.order, nullptr, stream);
}

template <class T, template <class> class Rows>
std::unique_ptr<BoundOp> make_few_rows(const ExpertsProblem& p, std::byte* scratch) {
  const auto pairs = static_cast<unsigned>(p.tokens * p.top_k);
  const auto shape = [&](std::int64_t columns, int of_tile) {
    return LaunchShape{.grid = dim3(static_cast<unsigned>(ceil_div(columns, of_tile)), pairs), .block = dim3(kThreads)};
  };
  const LaunchShape gate_up = shape(p.intermediate, kFewWeightRows / 2);
  const LaunchShape down = shape(p.hidden, kFewWeightRows);
  const Launches<T> l = launches_of<T>(p, Way::kFewRows, scratch, 0);
  return make_cuda_op("moe_experts, few rows", [=](cudaStream_t stream) {
    const auto count = static_cast<int>(l.pairs);
    launch_early(few_rows<T, true, Rows>, gate_up, stream, l.gate_up, l.ids, count);
    launch_early(few_rows<T, false, Rows>, down, stream, l.down, l.ids, count);
    launch_add_up<T, kPackSize<T>>(l, nullptr, stream);
  });
}

// A kernel that walks the list of tiles, with the number of blocks that the device runs at once, or fewer if there are
// fewer tiles.
struct TileKernel {
  LaunchShape shape;
  std::size_t shared_bytes = 0;
};

Result<TileKernel> tile_kernel(const void* kernel, std::size_t shared_bytes, std::int64_t tiles,
                               std::int64_t multiprocessors) {
  TRY(allow_shared_memory(kernel, shared_bytes, "moe_experts"));
  const int blocks = TRY(blocks_per_multiprocessor(kernel, kThreads, shared_bytes, "moe_experts"));
  const std::int64_t grid = std::min(tiles, blocks * multiprocessors);
  return TileKernel{.shape = {.grid = dim3(static_cast<unsigned>(grid)), .block = dim3(kThreads)},
                    .shared_bytes = shared_bytes};
}

template <class T, int kRows, template <class, int, bool> class WeightCopy>
Result<std::unique_ptr<BoundOp>> make_grouped(const ExpertsProblem& p, std::byte* scratch,
                                              std::int64_t multiprocessors) {
  constexpr std::size_t kShared = static_cast<std::size_t>(kStages) * kStageBytes<kRows>;
  const std::int64_t tiles = tiles_of(p, Way::kGrouped);
  const TileKernel gate_up =
      TRY(tile_kernel(reinterpret_cast<const void*>(grouped<T, kRows, true, WeightCopy>), kShared,
                      tiles * ceil_div(p.intermediate, kTileWeightRows / 2), multiprocessors));
  const TileKernel down = TRY(tile_kernel(reinterpret_cast<const void*>(grouped<T, kRows, false, WeightCopy>), kShared,
                                          tiles * ceil_div(p.hidden, kTileWeightRows), multiprocessors));
  return make_cuda_op("moe_experts, grouped", [=](cudaStream_t stream) {
    for (std::int64_t begin = 0; begin < p.tokens; begin += kMostTokens) {
      const Launches<T> l = launches_of<T>(p, Way::kGrouped, scratch, begin);
      const bool early = can_launch_early();
      launch_sort(p, begin, l, stream);
      launch_with(grouped<T, kRows, true, WeightCopy>, gate_up.shape, gate_up.shared_bytes, early, stream, l.gate_up,
                  l.order);
      launch_with(grouped<T, kRows, false, WeightCopy>, down.shape, down.shared_bytes, early, stream, l.down, l.order);
      launch_add_up<T, kPackSize<T>>(l, l.order.place, stream);
    }
  });
}

template <class T>
Result<std::unique_ptr<BoundOp>> make_plain(const ExpertsProblem& p, std::byte* scratch, std::int64_t multiprocessors) {
  const std::int64_t tiles = tiles_of(p, Way::kPlain);
  const TileKernel gate_up = TRY(tile_kernel(reinterpret_cast<const void*>(plain<T, true>), 0,
                                             tiles * ceil_div(p.intermediate, kPlainWeightRows / 2), multiprocessors));
  const TileKernel down = TRY(tile_kernel(reinterpret_cast<const void*>(plain<T, false>), 0,
                                          tiles * ceil_div(p.hidden, kPlainWeightRows), multiprocessors));
  return make_cuda_op("moe_experts, plain", [=](cudaStream_t stream) {
    for (std::int64_t begin = 0; begin < p.tokens; begin += kMostTokens) {
      const Launches<T> l = launches_of<T>(p, Way::kPlain, scratch, begin);
      launch_sort(p, begin, l, stream);
      launch_early(plain<T, true>, gate_up.shape, stream, l.gate_up, l.order);
      launch_early(plain<T, false>, down.shape, stream, l.down, l.order);
      launch_add_up<T, 1>(l, l.order.place, stream);
    }
  });
}

// Both tensor-core algorithms that read weights through `Rows` or `WeightCopy`.
template <class T, template <class> class Rows, template <class, int, bool> class WeightCopy>
Result<std::unique_ptr<BoundOp>> make_tiles(const ExpertsProblem& p, std::byte* scratch, std::int64_t multiprocessors,
                                            Way way) {
  if (way == Way::kFewRows) return make_few_rows<T, Rows>(p, scratch);
  return tile_rows(p, way) == kManyRows ? make_grouped<T, kManyRows, WeightCopy>(p, scratch, multiprocessors)
                                        : make_grouped<T, kSomeRows, WeightCopy>(p, scratch, multiprocessors);
}

template <class T>
Result<std::unique_ptr<BoundOp>> bind_way(const BindArgs& args, const ExpertsProblem& p, Way way) {
  std::byte* const scratch = args.workspace.raw();
  const std::int64_t multiprocessors = std::max(1, args.device.properties().threads);
  if (way == Way::kPlain) return make_plain<T>(p, scratch, multiprocessors);
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    if (p.mxfp4) return make_tiles<T, PackedRows, PackedCopy>(p, scratch, multiprocessors, way);
  }
  if constexpr (!std::is_same_v<T, float>) return make_tiles<T, PlainRows, PlainCopy>(p, scratch, multiprocessors, way);
  return internal_error("moe_experts: tensor cores for float32");
}

}  // namespace
}  // namespace cuda::moe

namespace {

Result<std::size_t> workspace_bytes(const BindArgs& args) {
  const ExpertsProblem p = make_experts_problem(args);
  if (p.quantised) return unimplemented("moe_experts: experts in this format on CUDA; accepted: plain ones and MXFP4");
  const cuda::moe::Way way = cuda::moe::choose(p, args.context.limits.deterministic);
  if (way == cuda::moe::Way::kOneToken) return one_token_scratch_bytes(p);
  if (way == cuda::moe::Way::kStreamed) return streamed_scratch_bytes(p);
  return way == cuda::moe::Way::kHopper ? hopper_scratch_bytes(p) : cuda::moe::scratch_of(p, way).size;
}

Result<std::unique_ptr<BoundOp>> bind(const BindArgs& args) {
  const ExpertsProblem p = make_experts_problem(args);
  const cuda::moe::Way way = cuda::moe::choose(p, args.context.limits.deterministic);
  if (way == cuda::moe::Way::kNothing) return make_cuda_op("moe_experts", [](cudaStream_t) {});
  if (way == cuda::moe::Way::kHopper) return bind_hopper(p, args.workspace.raw());
  if (way == cuda::moe::Way::kOneToken)
    return bind_one_token_experts(p, args.workspace.raw(), std::max(1, args.device.properties().threads));
  if (way == cuda::moe::Way::kStreamed)
    return bind_streamed_experts(p, args.workspace.raw(), std::max(1, args.device.properties().threads));
  return cuda::dispatch_dtype(p.dtype, "moe_experts", [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    return cuda::moe::bind_way<T>(args, p, way);
  });
}

}  // namespace

const KernelDef kMoeExpertsCuda{.op = "moe_experts", .name = "cuda", .bind = bind, .workspace_bytes = workspace_bytes};

}  // namespace tessera
