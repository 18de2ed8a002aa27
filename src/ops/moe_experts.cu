// moe_experts on CUDA. At bind one of four ways is chosen, by sizes and types alone:
//
//   few rows   16-bit types, few tokens (moe_few_rows.cuh): gate and up, down, sum
//   grouped    16-bit types (moe_grouped.cuh): sort, gate and up, down, sum
//   hopper     16-bit types, many rows to an expert (moe_hopper.cuh): order, gate and up, down, sum
//   plain      float32 and odd sizes (moe_plain.cuh): the same launches as grouped
//
// Weights of 4 bits go the first two ways with bfloat16, in which models that have them compute, else the plain one.
// A deterministic forward takes neither few rows nor hopper, whose sums have other orders: a row's bits then are the
// same in any company. Every launch has a fixed shape; what the router chose is read from device memory.
#include <algorithm>

#include "tessera/device/alignment.h"
#include "tessera/ops/cuda_op.h"
#include "tessera/ops/cuda_shared_memory.h"
#include "tessera/ops/moe_experts.cuh"
#include "tessera/ops/moe_few_rows.cuh"
#include "tessera/ops/moe_grouped.cuh"
#include "tessera/ops/moe_hopper.h"
#include "tessera/ops/moe_plain.cuh"
#include "tessera/ops/moe_route.h"
#include "tessera/ops/moe_sum.cuh"

namespace tessera {
namespace cuda::moe {
namespace {

constexpr int kSortThreads = 1024;
static_assert(kMaxExperts <= kSortThreads);
constexpr std::int64_t kMostTokens = 4096;  // at a time: bounds the scratch
constexpr std::int64_t kManyRows = 128;     // of a tile of a large prefill
constexpr std::int64_t kSomeRows = 64;      // of other tiles
static_assert(kSomeRows == kPlainRows);

// One block. The order of an expert's pairs among themselves follows the order of atomics and is not the same from run
// to run; it changes no bit, because no sum goes over rows and every pair knows its place.
__global__ void __launch_bounds__(kSortThreads)
    sort_pairs(const std::int32_t* ids, int pairs, int experts, int top_k, int block_rows, Order order) {
  __shared__ int counts[kMaxExperts];
  __shared__ int2 scratch[kSortThreads / kWarp];
  let_next_begin();
  wait_for_previous();
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < kMaxExperts) counts[thread] = 0;
  __syncthreads();
  const auto is_expert = [&](int id) { return id >= 0 && id < experts; };
  for (int i = thread; i < pairs; i += kSortThreads)
    if (is_expert(ids[i])) atomicAdd(&counts[ids[i]], 1);
  __syncthreads();

  const int rows = thread < experts ? counts[thread] : 0;
  const int tiles = (rows + block_rows - 1) / block_rows;
  const int2 before = sum_before(make_int2(rows, tiles), scratch);
  for (int i = 0; i < tiles; ++i)
    order.tiles[before.y + i] = {thread, before.x + i * block_rows, min(block_rows, rows - i * block_rows), 0};
  if (thread == kSortThreads - 1) *order.num_tiles = before.y + tiles;
  if (thread < kMaxExperts) counts[thread] = before.x;
  __syncthreads();

  for (int i = thread; i < pairs; i += kSortThreads) {
    const bool wanted = is_expert(ids[i]);
    const int place = wanted ? atomicAdd(&counts[ids[i]], 1) : -1;
    order.place[i] = place;
    if (wanted) order.row[place] = i / top_k;
  }
}

enum class Way { kNothing, kFewRows, kGrouped, kHopper, kPlain };

Way choose(const ExpertsProblem& p, bool deterministic) {
  if (p.tokens == 0) return Way::kNothing;
  const bool whole_chunks = p.hidden % 8 == 0 && p.intermediate % 8 == 0;
  if (p.dtype == ir::DType::kFloat32 || !whole_chunks) return Way::kPlain;
  if (p.mxfp4 && p.dtype != ir::DType::kBFloat16) return Way::kPlain;
  if (deterministic) return Way::kGrouped;
  if (p.tokens * p.top_k <= kMostPairs) return Way::kFewRows;
  return !p.mxfp4 && hopper_serves(p) ? Way::kHopper : Way::kGrouped;
}

std::int64_t most_tokens(const ExpertsProblem& p) { return std::min(p.tokens, kMostTokens); }
std::int64_t most_pairs(const ExpertsProblem& p) { return most_tokens(p) * p.top_k; }

// Large tiles where a token's even share of rows fills them.
std::int64_t tile_rows(const ExpertsProblem& p, Way way) {
  return way == Way::kGrouped && most_pairs(p) >= kManyRows * p.experts ? kManyRows : kSomeRows;
}
std::int64_t most_tiles(const ExpertsProblem& p, Way way) {
  return std::min(p.experts, most_pairs(p)) + most_pairs(p) / tile_rows(p, way);
}

// Where the parts of the scratch begin, in bytes.
struct Layout {
  std::size_t size = 0;
  std::size_t activated = 0;  // T[pairs, I]
  std::size_t outputs = 0;    // T[pairs, H]
  std::size_t num_tiles = 0;  // the next four: Order
  std::size_t tiles = 0;
  std::size_t place = 0;
  std::size_t row = 0;
};

Layout lay_out(const ExpertsProblem& p, Way way) {
  Layout l;
  if (way == Way::kNothing) return l;
  const auto take = [&](std::int64_t count, std::size_t bytes) {
    const std::size_t at = l.size;
    l.size += align_up(static_cast<std::size_t>(count) * bytes);
    return at;
  };
  const std::size_t element = ir::dtype_size(p.dtype);
  l.activated = take(most_pairs(p) * p.intermediate, element);
  l.outputs = take(most_pairs(p) * p.hidden, element);
  if (way == Way::kFewRows) return l;
  l.num_tiles = take(1, sizeof(int));
  l.tiles = take(most_tiles(p, way), sizeof(Tile));
  l.place = take(most_pairs(p), sizeof(int));
  l.row = take(most_pairs(p), sizeof(int));
  return l;
}

// The operator's launches for some of its tokens, as those of all ways need them.
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
  const Layout l = lay_out(p, way);
  const auto at = [&]<class U>(std::size_t offset, U*) { return reinterpret_cast<U*>(scratch + offset); };
  const auto n = static_cast<int>(p.intermediate);
  const auto h = static_cast<int>(p.hidden);
  T* const activated = at(l.activated, static_cast<T*>(nullptr));
  const std::int64_t tokens = std::min(kMostTokens, p.tokens - begin);
  Matmul<T> gate_up{.x = reinterpret_cast<const T*>(p.x) + begin * p.hidden,
                    .w = p.mxfp4 ? nullptr : reinterpret_cast<const T*>(p.gate_up),
                    .bias = reinterpret_cast<const T*>(p.gate_up_bias),
                    .packed = p.mxfp4 ? reinterpret_cast<const std::uint8_t*>(p.gate_up) : nullptr,
                    .scales = p.gate_up_scale,
                    .y = activated,
                    .n = n,
                    .k = h,
                    .w_rows = 2 * n,
                    .experts = static_cast<int>(p.experts),
                    .top_k = static_cast<int>(p.top_k),
                    .activation = p.activation,
                    .limit = p.limit};
  Matmul<T> down = gate_up;
  down.x = activated;
  down.w = p.mxfp4 ? nullptr : reinterpret_cast<const T*>(p.down);
  down.packed = p.mxfp4 ? reinterpret_cast<const std::uint8_t*>(p.down) : nullptr;
  down.scales = p.down_scale;
  down.bias = reinterpret_cast<const T*>(p.down_bias);
  down.y = at(l.outputs, static_cast<T*>(nullptr));
  down.n = down.w_rows = h;
  down.k = n;
  return {.gate_up = gate_up,
          .down = down,
          .order = {.num_tiles = at(l.num_tiles, static_cast<int*>(nullptr)),
                    .tiles = at(l.tiles, static_cast<Tile*>(nullptr)),
                    .place = at(l.place, static_cast<int*>(nullptr)),
                    .row = at(l.row, static_cast<int*>(nullptr))},
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

template <class T>
void launch_sort(const Launches<T>& l, cudaStream_t stream) {
  launch_early(sort_pairs, LaunchShape{.grid = dim3(1), .block = dim3(kSortThreads)}, stream, l.ids,
               static_cast<int>(l.pairs), l.down.experts, l.down.top_k, l.tile_rows, l.order);
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

// A kernel that walks the list of tiles, in as many blocks as the device runs at once or can be of use.
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
  const std::int64_t tiles = most_tiles(p, Way::kGrouped);
  const TileKernel gate_up =
      TRY(tile_kernel(reinterpret_cast<const void*>(grouped<T, kRows, true, WeightCopy>), kShared,
                      tiles * ceil_div(p.intermediate, kTileWeightRows / 2), multiprocessors));
  const TileKernel down = TRY(tile_kernel(reinterpret_cast<const void*>(grouped<T, kRows, false, WeightCopy>), kShared,
                                          tiles * ceil_div(p.hidden, kTileWeightRows), multiprocessors));
  return make_cuda_op("moe_experts, grouped", [=](cudaStream_t stream) {
    for (std::int64_t begin = 0; begin < p.tokens; begin += kMostTokens) {
      const Launches<T> l = launches_of<T>(p, Way::kGrouped, scratch, begin);
      const bool early = can_launch_early();
      launch_sort(l, stream);
      launch_with(grouped<T, kRows, true, WeightCopy>, gate_up.shape, gate_up.shared_bytes, early, stream, l.gate_up,
                  l.order);
      launch_with(grouped<T, kRows, false, WeightCopy>, down.shape, down.shared_bytes, early, stream, l.down, l.order);
      launch_add_up<T, kPackSize<T>>(l, l.order.place, stream);
    }
  });
}

template <class T>
Result<std::unique_ptr<BoundOp>> make_plain(const ExpertsProblem& p, std::byte* scratch, std::int64_t multiprocessors) {
  const std::int64_t tiles = most_tiles(p, Way::kPlain);
  const TileKernel gate_up = TRY(tile_kernel(reinterpret_cast<const void*>(plain<T, true>), 0,
                                             tiles * ceil_div(p.intermediate, kPlainWeightRows / 2), multiprocessors));
  const TileKernel down = TRY(tile_kernel(reinterpret_cast<const void*>(plain<T, false>), 0,
                                          tiles * ceil_div(p.hidden, kPlainWeightRows), multiprocessors));
  return make_cuda_op("moe_experts, plain", [=](cudaStream_t stream) {
    for (std::int64_t begin = 0; begin < p.tokens; begin += kMostTokens) {
      const Launches<T> l = launches_of<T>(p, Way::kPlain, scratch, begin);
      launch_sort(l, stream);
      launch_early(plain<T, true>, gate_up.shape, stream, l.gate_up, l.order);
      launch_early(plain<T, false>, down.shape, stream, l.down, l.order);
      launch_add_up<T, 1>(l, l.order.place, stream);
    }
  });
}

// The two ways of tensor cores, by how weights are read.
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
  const cuda::moe::Way way = cuda::moe::choose(p, args.context.limits.deterministic);
  return way == cuda::moe::Way::kHopper ? hopper_scratch_bytes(p) : cuda::moe::lay_out(p, way).size;
}

Result<std::unique_ptr<BoundOp>> bind(const BindArgs& args) {
  const ExpertsProblem p = make_experts_problem(args);
  const cuda::moe::Way way = cuda::moe::choose(p, args.context.limits.deterministic);
  if (way == cuda::moe::Way::kNothing) return make_cuda_op("moe_experts", [](cudaStream_t) {});
  if (way == cuda::moe::Way::kHopper) return bind_hopper(p, args.workspace.raw());
  return cuda::dispatch_dtype(p.dtype, "moe_experts", [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    return cuda::moe::bind_way<T>(args, p, way);
  });
}

}  // namespace

const KernelDef kMoeExpertsCuda{.op = "moe_experts", .name = "cuda", .bind = bind, .workspace_bytes = workspace_bytes};

}  // namespace tessera
