// Computes latent attention on CUDA, in two forms (latent_attention.h). The launches of the absorbed form come first.
// They multiply queries by the key matrices, compute attention, and multiply the result by the value matrices.
// Attention runs on the tensor-core kernel of latent_attention.cuh for supported sizes, and on a plain kernel for
// others. If a forward has too few tiles to occupy all multiprocessors, the keys are cut into ranges, each range gets
// its own blocks, and another launch merges the partial results (split KV). Deterministic forwards do not cut keys.
//
// The launches of the direct form (latent_direct.h) follow, for the requests that take this form. Both forms use the
// same scratch memory. The grids depend only on the bucket's number of rows, so that a recorded graph serves any
// requests. Blocks find their request in the metadata when they run.
#include "tessera/ops/latent/latent_attention.h"

#include <algorithm>
#include <climits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/device/alignment.h"
#include "tessera/ops/attention/attention.h"
#include "tessera/ops/contract/bound_sequence.h"
#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/cuda/cuda_shared_memory.h"
#include "tessera/ops/latent/latent_attention.cuh"
#include "tessera/ops/latent/latent_direct.h"
#include "tessera/ops/latent/latent_plain.cuh"
#include "tessera/ops/latent/latent_rows.cuh"

namespace tessera {
namespace {

using namespace latent;
using cuda::LaunchShape;

// The operands, in the order of the declaration.
enum Operand : std::size_t { kQ, kTable, kCache, kKeyMatrices, kValueMatrices, kOut };

// The decisions that are made at bind. The scratch memory holds the rows' queries and latents, and the partial results
// for ranges of keys. The direct form keeps its keys in the same memory.
struct Plan {
  LatentSizes sizes;
  ir::DType dtype;
  std::int64_t rows;
  bool tensor_cores;
  int tile_rows;  // rows in a block; a row is a query head of a token
  int splits;
  bool joins_values;  // a single launch, join_values(), joins ranges and multiplies by the value matrices
  LatentDirect direct;

  std::int64_t tiles(std::int64_t requests) const { return rows * sizes.heads / tile_rows + requests; }
  std::size_t row_bytes(std::int64_t width) const {
    return static_cast<std::size_t>(
        align_up<std::int64_t>(rows * sizes.heads * width * static_cast<std::int64_t>(ir::dtype_size(dtype))));
  }
  std::size_t query_bytes() const { return row_bytes(sizes.width); }
  std::size_t latent_bytes() const { return row_bytes(sizes.latent); }
  // These functions return the sizes of the split-KV partial results. `ranges` is the number of ranges of keys, summed
  // over all rows. value_bytes() counts only the partial values, and range_bytes() also counts the log-sum-exps.
  std::size_t value_bytes(std::int64_t ranges) const {
    return static_cast<std::size_t>(
        align_up<std::int64_t>(ranges * sizes.heads * sizes.latent * static_cast<std::int64_t>(sizeof(float))));
  }
  std::size_t range_bytes(std::int64_t ranges) const {
    return value_bytes(ranges) + static_cast<std::size_t>(ranges * sizes.heads) * sizeof(float);
  }
};

constexpr int kLargeTile = 64;

bool serves_tensor_cores(const BindArgs& args, const LatentSizes& sizes) {
  const ir::DType dtype = args.operands[kQ].dtype;
  return dtype != ir::DType::kFloat32 && args.operands[kCache].dtype == dtype && sizes.latent == kLatent &&
         sizes.width == kWidth;
}

// Returns whether blocks process tiles of 64 rows instead of 16. Tiles of 64 rows need most of a Hopper
// multiprocessor's shared memory, and read a key once for four times as many rows. Tiles of 16 rows suit few heads. In
// a deterministic forward the choice ignores the number of rows, because a row's bits must not depend on this number.
bool takes_large_tiles(const BindArgs& args, const LatentSizes& sizes) {
  constexpr std::int64_t kManyHeads = 32;
  if (args.device.properties().compute_capability != 90) return false;
  const std::int64_t tiles = args.operands[kQ].dim(0) * sizes.heads / kLargeTile;
  return sizes.heads >= kManyHeads || (!args.context.limits.deterministic && tiles >= args.device.properties().threads);
}

// Returns the number of ranges into which keys are cut (split KV). It is the greatest number up to kMostSplits for
// which no multiprocessor gets a second block. `blocks` is the number of blocks if no keys are cut. `blocks`, and
// therefore the result, depends only on the number of rows to which the forward is padded.
int splits_of(const BindArgs& args, std::int64_t blocks) {
  if (args.context.limits.deterministic) return 1;
  const std::int64_t multiprocessors = args.device.properties().threads;
  return static_cast<int>(
      std::clamp<std::int64_t>(multiprocessors / std::max<std::int64_t>(blocks, 1), 1, kMostSplits));
}

// The maximum number of rows for which join_values() runs. With more rows it would read the value matrices too often,
// because it reads them once for each row.
constexpr std::int64_t kFewRows = 8;

Result<Plan> make_plan_of(const BindArgs& args) {
  const LatentSizes sizes = latent_sizes(args);
  const std::int64_t rows = args.operands[kQ].dim(0);
  const LatentDirect direct = TRY(find_latent_direct(args));
  Plan plan{.sizes = sizes,
            .dtype = args.operands[kQ].dtype,
            .rows = rows,
            .tensor_cores = serves_tensor_cores(args, sizes),
            .tile_rows = kWarps,
            .splits = 1,
            .joins_values = false,
            .direct = direct};
  if (plan.tensor_cores) plan.tile_rows = takes_large_tiles(args, sizes) ? kLargeTile : 16;
  plan.splits = splits_of(args, rows * ceil_div(sizes.heads, plan.tile_rows));
  plan.joins_values = plan.tensor_cores && plan.splits > 1 && rows <= kFewRows && sizes.value % kValuesOfBlock == 0;
  return plan;
}

Problem make_problem(const BindArgs& args, const Plan& plan, const AttentionMetadata& metadata) {
  const bool split = plan.splits > 1;
  std::byte* latents = args.workspace.raw() + plan.query_bytes();
  std::byte* values = latents + plan.latent_bytes();
  return {.q = args.workspace.raw(),
          .k_cache = args.operands[kCache].data.raw(),
          .v_cache = args.operands[kCache].data.raw(),
          .out = plan.joins_values ? args.operands[kOut].data.raw() : latents,
          .sinks = nullptr,
          .partial_values = reinterpret_cast<float*>(split ? values : nullptr),
          .partial_lse = reinterpret_cast<float*>(split ? values + plan.value_bytes(plan.rows * plan.splits) : nullptr),
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
          .dtype = plan.dtype,
          .cache_dtype = args.operands[kCache].dtype,
          .scale = static_cast<float>(args.node.attribute_or("scale", 1.0)),
          .softcap = 0};
}

template <class X>
void launch_join(const Problem& p, int latent, cudaStream_t stream) {
  if (p.splits == 1 || p.num_rows == 0) return;
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(p.heads), static_cast<unsigned>(p.num_rows),
                                       static_cast<unsigned>(ceil_div(latent, kJoinColumns))),
                          .block = dim3(kJoinWarps * kWarp)};
  cuda::launch_early(join_ranges<X>, shape, stream, p, latent);
}

// Binds the kernel for tiles and the launch after it. The last argument of make_cuda_op() distinguishes three variants:
// no second launch, join_ranges(), or join_values().
template <class X, int kRowGroups, int kStages>
Result<std::unique_ptr<BoundOp>> bind_tiles(const BindArgs& args, const Plan& plan, const Problem& p) {
  constexpr auto kKernel = latent_tiles<X, kRowGroups, kStages>;
  constexpr std::size_t kBytes = sizeof(Shared<X, kRowGroups, kStages>);
  TRY(allow_shared_memory(reinterpret_cast<const void*>(kKernel), kBytes, "latent_attention"));
  const LaunchShape tiles{
      .grid = dim3(static_cast<unsigned>(plan.tiles(p.max_requests)), 1, static_cast<unsigned>(p.splits)),
      .block = dim3(kWarps * kWarp)};
  const LaunchShape values{.grid = dim3(static_cast<unsigned>(plan.sizes.value / kValuesOfBlock),
                                        static_cast<unsigned>(p.heads), static_cast<unsigned>(p.num_rows)),
                           .block = dim3(kValueWarps * kWarp)};
  const TensorView& matrices = args.operands[kValueMatrices];
  return make_cuda_op(
      "latent_attention",
      [=, forms = plan.direct.forms, w = matrices.as<const X>(), early = matrices.is_weight,
       value_dim = static_cast<int>(plan.sizes.value), joins_values = plan.joins_values](cudaStream_t stream) {
        cuda::launch_with(kKernel, tiles, kBytes, cuda::can_launch_early(), stream, p, forms);
        if (joins_values)
          cuda::launch_early(join_values<X>, values, stream, p, w, value_dim, early);
        else
          launch_join<X>(p, kLatent, stream);
      },
      plan.joins_values ? 2
      : p.splits > 1    ? 1
                        : 0);
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
      .grid = dim3(static_cast<unsigned>(p.num_rows), static_cast<unsigned>(ceil_div(p.heads, kWarps)),
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

// Returns the bytes of scratch memory for forwards that cut keys into ranges. The result suffices for every such
// forward of up to plan.rows rows. In such a forward, all rows together have at most `most` ranges: the number of
// multiprocessors divided by the number of groups of kLargeTile heads.
std::size_t cut_bytes(const BindArgs& args, const Plan& plan) {
  if (args.context.limits.deterministic) return 0;
  const std::int64_t most = args.device.properties().threads / ceil_div(plan.sizes.heads, std::int64_t{kLargeTile});
  Plan cut = plan;
  cut.rows = std::min(plan.rows, most / 2);  // each row has two ranges or more
  return cut.query_bytes() + cut.latent_bytes() + cut.range_bytes(std::min(cut.rows * kMostSplits, most));
}

Result<std::size_t> workspace_bytes(const BindArgs& args) {
  const Plan plan = TRY(make_plan_of(args));
  return std::max({plan.query_bytes() + plan.latent_bytes(), cut_bytes(args, plan), plan.direct.workspace_bytes});
}

Result<std::unique_ptr<BoundOp>> bind_attention(const BindArgs& args, const Plan& plan, const Problem& p) {
  return cuda::dispatch_dtype(args.operands[kQ].dtype, "latent_attention",
                              [&]<class X>() -> Result<std::unique_ptr<BoundOp>> {
                                if constexpr (sizeof(X) == 2) {
                                  if (plan.tensor_cores && plan.tile_rows == kLargeTile)
                                    return bind_tiles<X, 4, 2>(args, plan, p);
                                  if (plan.tensor_cores) return bind_tiles<X, 1, 1>(args, plan, p);
                                }
                                return bind_plain<X>(plan, p);
                              });
}

Result<std::unique_ptr<BoundOp>> bind(const BindArgs& args) {
  const AttentionMetadata metadata = TRY(find_attention_plan(args))->metadata();
  Plan plan = TRY(make_plan_of(args));
  LatentForms& forms = plan.direct.forms;
  forms.max_requests = static_cast<int>(std::min(metadata.max_requests, plan.rows));
  forms.num_rows = static_cast<int>(plan.rows);
  forms.num_requests = metadata.num_requests;
  forms.query_starts = metadata.query_starts;
  forms.kv_lens = metadata.kv_lens;

  const HeadLinearExtras of_queries{.forms = forms,
                                    .table = args.operands[kTable].as<const float>(),
                                    .rotated = static_cast<int>(plan.sizes.width - plan.sizes.latent),
                                    .interleaved = args.node.attribute_or("interleaved", false)};
  std::vector<std::unique_ptr<BoundOp>> parts;
  parts.push_back(TRY(bind_head_linear_cuda(latent_query_problem(args, args.workspace), plan.dtype, of_queries)));
  parts.push_back(TRY(bind_attention(args, plan, make_problem(args, plan, metadata))));
  if (!plan.joins_values)
    parts.push_back(TRY(bind_head_linear_cuda(latent_values_problem(args, args.workspace + plan.query_bytes()),
                                              plan.dtype, {.forms = forms})));
  if (forms.least_rows != INT_MAX) parts.push_back(TRY(bind_latent_direct(args, forms, metadata)));
  return std::make_unique<BoundSequence>(std::move(parts));
}

Result<std::unique_ptr<OpPlan>> make_plan(Device& device, const PlanArgs& args, StepBuffer& step) {
  return TRY(AttentionPlan::create(device, args, step, nullptr));
}

Result<std::int64_t> plan_bytes(Device& /*device*/, const PlanArgs& args) { return AttentionPlan::bytes_needed(args); }

const OpPlanner kPlanner{.make = make_plan, .bytes_needed = plan_bytes};

}  // namespace

const KernelDef kLatentAttentionCuda{
    .op = "latent_attention", .name = "cuda", .bind = bind, .workspace_bytes = workspace_bytes, .planner = &kPlanner};

}  // namespace tessera
