// Latent attention on CUDA: the tensor-core kernel of latent_attention.cuh for the sizes that it takes, and a plain one
// for all others. The launch depends on the bucket's rows alone; blocks find their request in the metadata when they
// run. Where a forward has too few tiles for the device, the keys are cut into ranges for blocks of their own, and a
// second launch joins them; not in deterministic forwards.
#include "tessera/ops/latent_attention.cuh"

#include <algorithm>
#include <string>

#include "tessera/device/alignment.h"
#include "tessera/ops/attention.h"
#include "tessera/ops/cuda_op.h"
#include "tessera/ops/cuda_shared_memory.h"
#include "tessera/ops/latent_attention.h"

namespace tessera {
namespace {

using namespace latent;
using cuda::LaunchShape;

constexpr int kPlainKeys = 16;  // of a tile
constexpr int kPlainColumns = 32;
constexpr std::int64_t kGreatestWidth = kPlainColumns * kWarp;

// The plain kernel: a warp has one query head of a token, a block eight of them, which share the tiles of keys in
// shared memory, all in float32. Its lanes have the columns lane, lane + 32, …. Grid [rows, blocks of heads, splits].
template <class X>
__global__ void __launch_bounds__(kWarps* kWarp) latent_heads(const Problem p, int latent) {
  extern __shared__ __align__(16) float shared_floats[];
  const int width = p.head_dim;
  float* const q = shared_floats;          // [kWarps, width]
  float* const keys = q + kWarps * width;  // [kPlainKeys, width]
  cuda::let_next_begin();
  cuda::wait_for_previous();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int split = static_cast<int>(blockIdx.z);
  // A tile of all heads of one token.
  const int token = static_cast<int>(blockIdx.x);
  int n = min(*p.num_requests, p.max_requests);
  while (n > 0 && p.query_starts[n] > p.num_rows) --n;
  if (n == 0 || token >= p.query_starts[n]) return;
  int low = 0;
  int high = n;  // the request is in [low, high)
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (p.query_starts[middle] <= token ? low : high) = middle;
  }
  const int query_len = p.query_starts[low + 1] - p.query_starts[low];
  const int in_request = token - p.query_starts[low];
  const Rows rows{.request = low,
                  .query_start = p.query_starts[low],
                  .row_begin = in_request * p.heads,
                  .rows = p.heads,
                  .offset = p.kv_lens[low] - query_len};
  const Keys range = keys_of(p, rows, split, kPlainKeys);
  const int head = static_cast<int>(blockIdx.y) * kWarps + warp;
  const bool real = head < p.heads;
  for (int d = lane; d < width; d += kWarp)
    q[warp * width + d] =
        real ? to_float(static_cast<const X*>(p.q)[(static_cast<std::int64_t>(token) * p.heads + head) * width + d]) *
                   p.scale
             : 0.0f;

  const int* pages = p.page_table + static_cast<std::int64_t>(low) * p.max_pages;
  float sum[kPlainColumns] = {};
  float greatest = -INFINITY;
  float total = 0;
  for (int first = range.begin; first < range.end; first += kPlainKeys) {
    const int count = min(kPlainKeys, range.end - first);
    __syncthreads();
    own_attention::with_type(p.cache_dtype, [&]<class Y>() {
      for (int i = warp; i < count; i += kWarps) {
        const int key = first + i;
        const std::int64_t slot = static_cast<std::int64_t>(pages[key / p.page_size]) * p.page_size + key % p.page_size;
        for (int d = lane; d < width; d += kWarp)
          keys[i * width + d] = to_float(static_cast<const Y*>(p.k_cache)[slot * width + d]);
      }
    });
    __syncthreads();
    for (int i = 0; i < count; ++i) {
      float score = 0;
      for (int d = lane; d < width; d += kWarp) score = fmaf(q[warp * width + d], keys[i * width + d], score);
      score = cuda::warp_sum(score);
      const float now = fmaxf(greatest, score);
      const float shrink = greatest == -INFINITY ? 0.0f : expf(greatest - now);
      const float weight = expf(score - now);
      greatest = now;
      total = fmaf(total, shrink, weight);
#pragma unroll
      for (int j = 0; j < kPlainColumns; ++j) {
        const int d = lane + kWarp * j;
        if (d < latent) sum[j] = fmaf(sum[j], shrink, weight * keys[i * width + d]);
      }
    }
  }
  if (!real) return;
  const Target target = target_of(p, rows, head, split);
  const float inverse = total > 0 ? 1.0f / total : 0.0f;
  if (target.partial && lane == 0)
    p.partial_lse[target.at] = total > 0 ? greatest * 1.44269504088896f + log2f(total) : -INFINITY;
#pragma unroll
  for (int j = 0; j < kPlainColumns; ++j) {
    const int d = lane + kWarp * j;
    if (d >= latent) continue;
    if (target.partial)
      p.partial_values[target.at * latent + d] = sum[j] * inverse;
    else
      static_cast<X*>(p.out)[target.at * latent + d] = from_float<X>(sum[j] * inverse);
  }
}

constexpr int kJoinWarps = 4;
constexpr int kJoinColumns = kWarp * 4;  // of a block: a float4 to a lane

// Joins the ranges of keys of a row. A range in which a row sees no key has no values, and is left out. Each warp has
// every kJoinWarps-th range. Grid [heads, rows, parts of the columns].
template <class X>
__global__ void __launch_bounds__(kJoinWarps* kWarp) join_ranges(const Problem p, int latent) {
  __shared__ float4 sums[kJoinWarps][kWarp];
  __shared__ float totals[kJoinWarps];
  cuda::let_next_begin();
  cuda::wait_for_previous();
  const std::int64_t token = blockIdx.y;
  int n = min(*p.num_requests, p.max_requests);
  while (n > 0 && p.query_starts[n] > p.num_rows) --n;
  if (n == 0 || token >= p.query_starts[n]) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int first = static_cast<int>(blockIdx.z) * kJoinColumns + lane * 4;
  const auto part = [&](int split) { return (token * p.splits + split) * p.heads + blockIdx.x; };
  float greatest = -INFINITY;
  for (int split = lane; split < p.splits; split += kWarp) greatest = fmaxf(greatest, p.partial_lse[part(split)]);
  for (int step = kWarp / 2; step > 0; step /= 2)
    greatest = fmaxf(greatest, __shfl_xor_sync(0xffffffffu, greatest, step));
  float4 sum = make_float4(0, 0, 0, 0);
  float total = 0;
#pragma unroll 8
  for (int split = warp; split < p.splits; split += kJoinWarps) {
    const float lse = p.partial_lse[part(split)];
    if (lse == -INFINITY) continue;
    const float weight = exp2f(lse - greatest);
    total += weight;
    float x[4] = {};
    if (latent % 4 == 0 && first < latent) {
      *reinterpret_cast<float4*>(x) = *reinterpret_cast<const float4*>(p.partial_values + part(split) * latent + first);
    } else {
      for (int i = 0; i < 4; ++i)
        if (first + i < latent) x[i] = p.partial_values[part(split) * latent + first + i];
    }
    sum = make_float4(fmaf(weight, x[0], sum.x), fmaf(weight, x[1], sum.y), fmaf(weight, x[2], sum.z),
                      fmaf(weight, x[3], sum.w));
  }
  sums[warp][lane] = sum;
  if (lane == 0) totals[warp] = total;
  __syncthreads();
  const int column = static_cast<int>(blockIdx.z) * kJoinColumns + static_cast<int>(threadIdx.x);
  if (column >= latent) return;
  float value = 0;
  float weights = 0;
#pragma unroll
  for (int w = 0; w < kJoinWarps; ++w) {
    value += reinterpret_cast<const float*>(sums[w])[threadIdx.x];
    weights += totals[w];
  }
  static_cast<X*>(p.out)[(token * p.heads + blockIdx.x) * latent + column] = from_float<X>(value / weights);
}
static_assert(kJoinWarps * kWarp == kJoinColumns, "a thread has a column of the joined row");

// What is decided at bind.
struct Plan {
  LatentSizes sizes;
  std::int64_t rows;
  bool tensor_cores;
  int tile_rows;  // of a block, a row being a query head of a token
  int splits;

  std::int64_t tiles(std::int64_t requests) const { return rows * sizes.heads / tile_rows + requests; }
  std::size_t value_bytes() const {
    return static_cast<std::size_t>(
        align_up<std::int64_t>(rows * splits * sizes.heads * sizes.latent * static_cast<std::int64_t>(sizeof(float))));
  }
  std::size_t lse_bytes() const { return static_cast<std::size_t>(rows * splits * sizes.heads) * sizeof(float); }
};

bool serves_tensor_cores(const BindArgs& args, const LatentSizes& sizes) {
  const ir::DType dtype = args.operands[0].dtype;
  return dtype != ir::DType::kFloat32 && args.operands[1].dtype == dtype && sizes.latent == kLatent &&
         sizes.width == kWidth;
}

// Blocks of 64 rows need most of a Hopper multiprocessor's shared memory, those of 16 rows suit few heads. Not by the
// number of rows: a deterministic forward's bits must not depend on it.
bool takes_large_tiles(const BindArgs& args, const LatentSizes& sizes) {
  constexpr std::int64_t kManyHeads = 32;
  return args.device.properties().compute_capability == 90 && sizes.heads >= kManyHeads;
}

// Ranges of keys, so that every multiprocessor has a block. Depends on the bucket's rows alone.
int splits_of(const BindArgs& args, std::int64_t blocks) {
  constexpr std::int64_t kMost = 64;
  if (args.context.limits.deterministic) return 1;
  const std::int64_t multiprocessors = args.device.properties().threads;
  return static_cast<int>(std::clamp<std::int64_t>(multiprocessors / std::max<std::int64_t>(blocks, 1), 1, kMost));
}

Plan make_plan_of(const BindArgs& args) {
  Plan plan{
      .sizes = latent_sizes(args), .rows = args.operands[0].dim(0), .tensor_cores = false, .tile_rows = 1, .splits = 1};
  plan.tensor_cores = serves_tensor_cores(args, plan.sizes);
  plan.tile_rows = !plan.tensor_cores ? kWarps : takes_large_tiles(args, plan.sizes) ? 64 : 16;
  plan.splits = splits_of(args, plan.rows * cuda::ceil_div(plan.sizes.heads, plan.tile_rows));
  return plan;
}

Problem make_problem(const BindArgs& args, const Plan& plan, const AttentionMetadata& metadata) {
  const bool split = plan.splits > 1;
  std::byte* values = split ? args.workspace.raw() : nullptr;
  return {.q = args.operands[0].data.raw(),
          .k_cache = args.operands[1].data.raw(),
          .v_cache = args.operands[1].data.raw(),
          .out = args.operands[2].data.raw(),
          .sinks = nullptr,
          .partial_values = reinterpret_cast<float*>(values),
          .partial_lse = reinterpret_cast<float*>(split ? values + plan.value_bytes() : nullptr),
          .num_requests = metadata.num_requests,
          .query_starts = metadata.query_starts,
          .kv_lens = metadata.kv_lens,
          .page_table = metadata.page_table,
          .max_pages = static_cast<int>(metadata.max_pages_per_request),
          .max_requests = static_cast<int>(std::min(metadata.max_requests, plan.rows)),
          .num_rows = static_cast<int>(plan.rows),
          .heads = static_cast<int>(plan.sizes.heads),
          .kv_heads = 1,
          .group = static_cast<int>(plan.sizes.heads),
          .head_dim = static_cast<int>(plan.sizes.width),
          .page_size = static_cast<int>(plan.sizes.page_size),
          .window = 0,
          .splits = plan.splits,
          .dtype = args.operands[0].dtype,
          .cache_dtype = args.operands[1].dtype,
          .scale = static_cast<float>(args.node.attribute_or("scale", 1.0)),
          .softcap = 0};
}

template <class X>
void launch_join(const Problem& p, int latent, cudaStream_t stream) {
  if (p.splits == 1 || p.num_rows == 0) return;
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(p.heads), static_cast<unsigned>(p.num_rows),
                                       static_cast<unsigned>(cuda::ceil_div(latent, kJoinColumns))),
                          .block = dim3(kJoinWarps * kWarp)};
  cuda::launch_early(join_ranges<X>, shape, stream, p, latent);
}

// `choice` tells apart what runs: with a second launch or without.
template <class X, int kRowGroups, int kStages>
Result<std::unique_ptr<BoundOp>> bind_tiles(const Plan& plan, const Problem& p) {
  constexpr auto kKernel = latent_tiles<X, kRowGroups, kStages>;
  constexpr std::size_t kBytes = sizeof(Shared<X, kRowGroups, kStages>);
  TRY(allow_shared_memory(reinterpret_cast<const void*>(kKernel), kBytes, "latent_attention"));
  LaunchShape shape{.grid = dim3(static_cast<unsigned>(plan.tiles(p.max_requests)), 1, static_cast<unsigned>(p.splits)),
                    .block = dim3(kWarps * kWarp)};
  return make_cuda_op(
      "latent_attention",
      [=](cudaStream_t stream) {
        cuda::launch_with(kKernel, shape, kBytes, cuda::can_launch_early(), stream, p);
        launch_join<X>(p, kLatent, stream);
      },
      p.splits > 1 ? 1 : 0);
}

template <class X>
Result<std::unique_ptr<BoundOp>> bind_plain(const Plan& plan, const Problem& p) {
  if (plan.sizes.width > kGreatestWidth)
    return unimplemented("latent_attention on CUDA takes rows of at most " + std::to_string(kGreatestWidth) +
                         " values, not " + std::to_string(plan.sizes.width));
  constexpr auto kKernel = latent_heads<X>;
  const std::size_t bytes = static_cast<std::size_t>((kWarps + kPlainKeys) * plan.sizes.width) * sizeof(float);
  TRY(allow_shared_memory(reinterpret_cast<const void*>(kKernel), bytes, "latent_attention"));
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(p.num_rows), static_cast<unsigned>(cuda::ceil_div(p.heads, kWarps)),
                   static_cast<unsigned>(p.splits)),
      .block = dim3(kWarps * kWarp)};
  const int latent = static_cast<int>(plan.sizes.latent);
  return make_cuda_op(
      "latent_attention",
      [=](cudaStream_t stream) {
        cuda::launch_with(kKernel, shape, bytes, cuda::can_launch_early(), stream, p, latent);
        launch_join<X>(p, latent, stream);
      },
      p.splits > 1 ? 1 : 0);
}

Result<std::size_t> workspace_bytes(const BindArgs& args) {
  const Plan plan = make_plan_of(args);
  return plan.splits > 1 ? plan.value_bytes() + plan.lse_bytes() : 0;
}

Result<std::unique_ptr<BoundOp>> bind(const BindArgs& args) {
  const AttentionPlan* metadata = TRY(find_attention_plan(args));
  const Plan plan = make_plan_of(args);
  const Problem p = make_problem(args, plan, metadata->metadata());
  return cuda::dispatch_dtype(args.operands[0].dtype, "latent_attention",
                              [&]<class X>() -> Result<std::unique_ptr<BoundOp>> {
                                if constexpr (sizeof(X) == 2) {
                                  if (plan.tensor_cores && plan.tile_rows == 64) return bind_tiles<X, 4, 2>(plan, p);
                                  if (plan.tensor_cores) return bind_tiles<X, 1, 1>(plan, p);
                                }
                                return bind_plain<X>(plan, p);
                              });
}

Result<std::unique_ptr<OpPlan>> make_plan(Device& device, const PlanArgs& args, StepBuffer& step) {
  return TRY(AttentionPlan::create(device, args, step, nullptr));
}

Result<std::int64_t> plan_bytes(Device& /*device*/, const PlanArgs& args) { return AttentionPlan::bytes_needed(args); }

constexpr OpPlanner kPlanner{.make = make_plan, .bytes_needed = plan_bytes};

}  // namespace

const KernelDef kLatentAttentionCuda{
    .op = "latent_attention", .name = "cuda", .bind = bind, .workspace_bytes = workspace_bytes, .planner = &kPlanner};

}  // namespace tessera
