// Latent attention on the CPU. First, a matrix product for each head (head_linear.h) makes the queries. Then
// attention's own kernel (attention_cpu.h) runs with one KV head. The first elements of each key serve as the key's
// value. Finally, another product for each head turns the resulting latents into the output.
#include "tessera/ops/latent/latent_attention.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/device/alignment.h"
#include "tessera/ops/attention/attention_cpu.h"
#include "tessera/ops/contract/bound_sequence.h"
#include "tessera/ops/contract/shape_rule.h"
#include "tessera/ops/cpu/cpu_math.h"
#include "tessera/ops/cpu/cpu_op.h"
#include "tessera/ops/cpu/row_loop.h"
#include "tessera/ops/latent/head_linear.h"
#include "tessera/ops/latent/latent_rotation.h"

namespace tessera {
namespace {

// The operands, in the order of the declaration.
enum Operand : std::size_t { kQ, kTable, kCache, kKeys, kValues, kOut };

Status check_cache(const ir::OpSignature& s) {
  TRY(expect_floating(s, kCache, "cache"));
  TRY(expect_rank(s, kCache, "cache", 3));
  const ir::Type& cache = s.operands[kCache];
  if (cache.shape[1].constant().value_or(0) < 1 || cache.shape[2].constant().value_or(0) < 1)
    return refuse(s, fmt::format("cache is {}; page size and columns must be numbers above 0", cache.to_string()));
  return ok_status();
}

// Checks that the operand is [heads, any, latent], with the same heads and latent as `values`.
Status check_matrices(const ir::OpSignature& s, std::size_t operand, const char* name) {
  TRY(expect_rank(s, operand, name, 3));
  const ir::Type& own = s.operands[operand];
  const ir::Type& values = s.operands[kValues];
  TRY(expect_type(s, operand, name, {s.operands[kQ].dtype, {values.shape[0], own.shape[1], values.shape[2]}}));
  for (const ir::Dim& dim : own.shape)
    if (dim.constant().value_or(0) < 1)
      return refuse(s, fmt::format("{} is {}; its sizes must be numbers above 0", name, own.to_string()));
  return ok_status();
}

Result<std::vector<ir::Type>> infer_latent_attention(const ir::OpSignature& s) {
  const ir::Type& q = s.operands[kQ];
  TRY(expect_floating(s, kQ, "q"));
  TRY(expect_rank(s, kQ, "q", 2));
  TRY(check_cache(s));
  TRY(expect_rank(s, kValues, "values", 3));
  TRY(check_matrices(s, kValues, "values"));
  TRY(check_matrices(s, kKeys, "keys"));
  const std::int64_t heads = *s.operands[kValues].shape[0].constant();
  const std::int64_t latent = *s.operands[kValues].shape[2].constant();
  const std::int64_t width = *s.operands[kCache].shape[2].constant();
  if (latent > width || (width - latent) % 2 != 0)
    return refuse(
        s, fmt::format("values have {} columns; the cache's {} columns minus these must be even and not negative",
                       latent, width));
  TRY(expect_rank(s, kTable, "table", 2));
  TRY(expect_type(s, kTable, "table", {ir::DType::kFloat32, {q.shape[0], width - latent}}));
  const std::int64_t q_dim = *s.operands[kKeys].shape[1].constant() + width - latent;
  const std::int64_t q_cols = TRY(constant_cols(s, kQ, "q"));
  if (q_cols < heads * q_dim)
    return refuse(s, fmt::format("rows of q have {} values, fewer than {} heads of {}", q_cols, heads, q_dim));
  TRY(expect_rank(s, kOut, "out", 2));
  TRY(expect_type(s, kOut, "out", {q.dtype, {q.shape[0], heads * *s.operands[kValues].shape[1].constant()}}));
  const std::int64_t group = s.node.attribute_or("group", std::int64_t{0});
  if (group < 0) return refuse(s, fmt::format("group is {}; cache groups count from 0", group));
  TRY(expect_positive(s, "scale"));
  return std::vector<ir::Type>{};
}

// The sizes of the first two parts of the scratch memory: the queries of all heads, and then the latents of all heads.
// A workspace follows, which attention and head_linear use one after the other.
struct Rows {
  explicit Rows(const BindArgs& args) {
    const LatentSizes sizes = latent_sizes(args);
    const std::int64_t values =
        args.operands[kQ].dim(0) * sizes.heads * static_cast<std::int64_t>(ir::dtype_size(args.operands[kQ].dtype));
    query_bytes = static_cast<std::size_t>(align_up(values * sizes.width));
    latent_bytes = static_cast<std::size_t>(align_up(values * sizes.latent));
  }
  std::size_t query_bytes;
  std::size_t latent_bytes;
};

Result<std::size_t> workspace_bytes(const BindArgs& args) {
  const Rows rows(args);
  return rows.query_bytes + rows.latent_bytes +
         std::max(attention_workspace_bytes(args, args.operands[kCache].dim(2)),
                  head_linear_cpu_workspace_bytes(args.device));
}

template <class X>
struct Rotation {
  const X* q;
  const float* table;
  X* query;
  LatentSizes sizes;
  std::int64_t q_stride;
  bool interleaved;
};

// Applies the rotary embedding to the last elements of every query head, in rows [begin, end).
template <class X>
TESSERA_CPU_CLONES void turn_rows(const Rotation<X>& r, std::int64_t begin, std::int64_t end) {
  const std::int64_t rotated = r.sizes.width - r.sizes.latent;
  for (std::int64_t t = begin; t < end; ++t)
    for (std::int64_t h = 0; h < r.sizes.heads; ++h)
      turn(r.q + t * r.q_stride + h * (r.sizes.key + rotated) + r.sizes.key, r.table + t * rotated,
           r.query + (t * r.sizes.heads + h) * r.sizes.width + r.sizes.latent, rotated / 2, r.interleaved);
}

Result<std::unique_ptr<BoundOp>> bind_rotation(const BindArgs& args) {
  return dispatch_dtype(
      args.operands[kQ].dtype, "latent_attention", [&]<class X>() -> Result<std::unique_ptr<BoundOp>> {
        const Rotation<X> r{.q = args.operands[kQ].as<X>(),
                            .table = args.operands[kTable].as<float>(),
                            .query = reinterpret_cast<X*>(args.workspace.raw()),
                            .sizes = latent_sizes(args),
                            .q_stride = args.operands[kQ].dim(1),
                            .interleaved = args.node.attribute_or("interleaved", false)};
        const std::int64_t bytes =
            2 * r.sizes.heads * (r.sizes.width - r.sizes.latent) * static_cast<std::int64_t>(sizeof(X));
        return make_cpu_op("latent_attention", [r, bytes, rows = args.operands[kQ].dim(0)] {
          parallel_rows(rows, bytes, [&](std::int64_t begin, std::int64_t end) { turn_rows(r, begin, end); });
        });
      });
}

Result<std::unique_ptr<BoundOp>> bind(const BindArgs& args) {
  const LatentSizes sizes = latent_sizes(args);
  const ir::DType dtype = args.operands[kQ].dtype;
  const TensorView& cache = args.operands[kCache];
  const Rows rows(args);
  const DeviceAddress latents = args.workspace + rows.query_bytes;
  const DeviceAddress scratch = latents + rows.latent_bytes;
  AttentionProblem p{};
  p.q = args.workspace.raw();
  p.k_cache = p.v_cache = cache.data.raw();
  p.out = latents.raw();
  p.num_rows = args.operands[kQ].dim(0);
  p.heads = sizes.heads;
  p.kv_heads = 1;
  p.head_dim = sizes.width;
  p.value_dim = sizes.latent;
  p.page_size = sizes.page_size;
  p.scale = static_cast<float>(args.node.attribute_or("scale", 1.0));
  const BindArgs attend{args.node, args.operands, args.results, scratch, args.device, args.context};
  std::vector<std::unique_ptr<BoundOp>> parts;
  parts.push_back(TRY(bind_rotation(args)));
  parts.push_back(TRY(bind_head_linear_cpu(latent_query_problem(args, args.workspace), dtype, args.device, scratch)));
  parts.push_back(TRY(bind_attention_tiles(attend, p, cache.dtype, "latent_attention")));
  parts.push_back(TRY(bind_head_linear_cpu(latent_values_problem(args, latents), dtype, args.device, scratch)));
  return std::make_unique<BoundSequence>(std::move(parts));
}

}  // namespace

LatentSizes latent_sizes(const BindArgs& args) {
  const TensorView& cache = args.operands[kCache];
  const TensorView& values = args.operands[kValues];
  return {.heads = values.dim(0),
          .width = cache.dim(2),
          .latent = values.dim(2),
          .key = args.operands[kKeys].dim(1),
          .value = values.dim(1),
          .page_size = cache.dim(1)};
}

HeadLinearProblem latent_query_problem(const BindArgs& args, DeviceAddress query) {
  const LatentSizes sizes = latent_sizes(args);
  return {.x = args.operands[kQ].data.raw(),
          .w = args.operands[kKeys].data.raw(),
          .out = query.raw(),
          .rows = args.operands[kQ].dim(0),
          .heads = sizes.heads,
          .x_stride = args.operands[kQ].dim(1),
          .x_dim = sizes.key + sizes.width - sizes.latent,
          .out_dim = sizes.width,
          .n = sizes.latent,
          .k = sizes.key,
          .transposed = true,
          .w_is_weight = args.operands[kKeys].is_weight,
          .deterministic = args.context.limits.deterministic};
}

HeadLinearProblem latent_values_problem(const BindArgs& args, DeviceAddress latents) {
  const LatentSizes sizes = latent_sizes(args);
  return {.x = latents.raw(),
          .w = args.operands[kValues].data.raw(),
          .out = args.operands[kOut].data.raw(),
          .rows = args.operands[kQ].dim(0),
          .heads = sizes.heads,
          .x_stride = sizes.heads * sizes.latent,
          .x_dim = sizes.latent,
          .out_dim = sizes.value,
          .n = sizes.value,
          .k = sizes.latent,
          .transposed = false,
          .w_is_weight = args.operands[kValues].is_weight,
          .deterministic = args.context.limits.deterministic};
}

const ir::OpDecl kLatentAttention{
    .name = "latent_attention",
    .summary =
        "out = values * (softmax(scale * query row^T) row[:C]) over a paged latent cache, a head of query being keys^T "
        "q[:N] beside rotary(q[N:]); q [T, H*(N+R)], cache [P, page_size, C+R], keys [H, N, C], values [H, V, C], out "
        "[T, H*V]",
    .operands = {{.name = "q"},
                 {.name = "table"},
                 {.name = "cache"},
                 {.name = "keys"},
                 {.name = "values"},
                 {.name = "out", .mutated = true}},
    .attributes = {{.name = "group", .kind = ir::AttributeKind::kInt, .required = true},
                   {.name = "scale", .kind = ir::AttributeKind::kDouble, .required = true},
                   {.name = "interleaved", .kind = ir::AttributeKind::kBool}},
    .infer = infer_latent_attention,
    .split_by_default = true,
};

const KernelDef kLatentAttentionCpu{.op = "latent_attention",
                                    .name = "cpu",
                                    .bind = bind,
                                    .workspace_bytes = workspace_bytes,
                                    .planner = &kCpuAttentionPlanner};

}  // namespace tessera
