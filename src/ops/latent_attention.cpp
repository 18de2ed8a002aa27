// The CPU's kernel is attention's own (attention_cpu.h), with one KV head whose values are a part of its keys, and
// head_linear's.
#include "tessera/ops/latent_attention.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/device/alignment.h"
#include "tessera/ops/attention_cpu.h"
#include "tessera/ops/bound_sequence.h"
#include "tessera/ops/head_linear.h"
#include "tessera/ops/shape_rule.h"

namespace tessera {
namespace {

// In declaration order.
enum Operand : std::size_t { kQuery, kCache, kQ, kKeys, kValues, kOut };

Status check_cache(const ir::OpSignature& s) {
  TRY(expect_floating(s, kCache, "cache"));
  TRY(expect_rank(s, kCache, "cache", 3));
  const ir::Type& cache = s.operands[kCache];
  if (cache.shape[1].constant().value_or(0) < 1 || cache.shape[2].constant().value_or(0) < 1)
    return refuse(s, fmt::format("cache is {}; page size and columns must be numbers above 0", cache.to_string()));
  return ok_status();
}

// [heads, any, latent], both numbers being those of `values`.
Status check_matrices(const ir::OpSignature& s, std::size_t operand, const char* name) {
  TRY(expect_rank(s, operand, name, 3));
  const ir::Type& own = s.operands[operand];
  const ir::Type& values = s.operands[kValues];
  TRY(expect_type(s, operand, name, {s.operands[kQuery].dtype, {values.shape[0], own.shape[1], values.shape[2]}}));
  for (const ir::Dim& dim : own.shape)
    if (dim.constant().value_or(0) < 1)
      return refuse(s, fmt::format("{} is {}; its sizes must be numbers above 0", name, own.to_string()));
  return ok_status();
}

Result<std::vector<ir::Type>> infer(const ir::OpSignature& s) {
  const ir::Type& query = s.operands[kQuery];
  TRY(expect_floating(s, kQuery, "query"));
  TRY(expect_rank(s, kQuery, "query", 2));
  TRY(check_cache(s));
  TRY(expect_rank(s, kValues, "values", 3));
  TRY(check_matrices(s, kValues, "values"));
  TRY(check_matrices(s, kKeys, "keys"));
  const std::int64_t heads = *s.operands[kValues].shape[0].constant();
  const std::int64_t latent = *s.operands[kValues].shape[2].constant();
  const std::int64_t width = *s.operands[kCache].shape[2].constant();
  if (latent > width)
    return refuse(s, fmt::format("values are of {} columns, which is no part of the cache's {}", latent, width));
  const std::int64_t key = *s.operands[kKeys].shape[1].constant() + width - latent;
  TRY(expect_type(s, kQuery, "query", {query.dtype, {query.shape[0], heads * width}}));
  TRY(expect_rank(s, kQ, "q", 2));
  TRY(expect_type(s, kQ, "q", {query.dtype, {query.shape[0], heads * key}}));
  TRY(expect_rank(s, kOut, "out", 2));
  TRY(expect_type(s, kOut, "out", {query.dtype, {query.shape[0], heads * *s.operands[kValues].shape[1].constant()}}));
  const std::int64_t group = s.node.attribute_or("group", std::int64_t{0});
  if (group < 0) return refuse(s, fmt::format("group is {}; cache groups count from 0", group));
  TRY(expect_positive(s, "scale"));
  return std::vector<ir::Type>{};
}

// The latents of all heads, before the scratch of what makes them and of what reads them.
std::size_t latent_bytes(const BindArgs& args) {
  const LatentSizes sizes = latent_sizes(args);
  return static_cast<std::size_t>(
      align_up<std::int64_t>(args.operands[kQuery].dim(0) * sizes.heads * sizes.latent *
                             static_cast<std::int64_t>(ir::dtype_size(args.operands[kQuery].dtype))));
}

Result<std::size_t> workspace_bytes(const BindArgs& args) {
  return latent_bytes(args) + std::max(attention_workspace_bytes(args, args.operands[kCache].dim(2)),
                                       head_linear_cpu_workspace_bytes(args.device));
}

Result<std::unique_ptr<BoundOp>> bind(const BindArgs& args) {
  const LatentSizes sizes = latent_sizes(args);
  const TensorView& cache = args.operands[kCache];
  const DeviceAddress scratch = args.workspace + latent_bytes(args);
  AttentionProblem p{};
  p.q = args.operands[kQuery].data.raw();
  p.k_cache = p.v_cache = cache.data.raw();
  p.out = args.workspace.raw();
  p.num_rows = args.operands[kQuery].dim(0);
  p.heads = sizes.heads;
  p.kv_heads = 1;
  p.head_dim = sizes.width;
  p.value_dim = sizes.latent;
  p.page_size = sizes.page_size;
  p.scale = static_cast<float>(args.node.attribute_or("scale", 1.0));
  const BindArgs attend{args.node, args.operands, args.results, scratch, args.device, args.context};
  std::vector<std::unique_ptr<BoundOp>> parts;
  parts.push_back(TRY(bind_attention_tiles(attend, p, cache.dtype, "latent_attention")));
  parts.push_back(TRY(bind_head_linear_cpu(latent_values_problem(args, args.workspace), args.operands[kQuery].dtype,
                                           args.device, scratch)));
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

HeadLinearProblem latent_values_problem(const BindArgs& args, DeviceAddress latents) {
  const LatentSizes sizes = latent_sizes(args);
  return {.x = latents.raw(),
          .w = args.operands[kValues].data.raw(),
          .out = args.operands[kOut].data.raw(),
          .rows = args.operands[kQuery].dim(0),
          .heads = sizes.heads,
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
        "out = values * (softmax(scale * query row^T) row[:C]) over a paged latent cache; query [T, H*(C+R)], cache "
        "[P, "
        "page_size, C+R], q [T, H*(N+R)], keys [H, N, C], values [H, V, C], out [T, H*V]",
    .operands = {{.name = "query"},
                 {.name = "cache"},
                 {.name = "q"},
                 {.name = "keys"},
                 {.name = "values"},
                 {.name = "out", .mutated = true}},
    .attributes = {{.name = "group", .kind = ir::AttributeKind::kInt, .required = true},
                   {.name = "scale", .kind = ir::AttributeKind::kDouble, .required = true}},
    .infer = infer,
    .split_by_default = true,
};

const KernelDef kLatentAttentionCpu{.op = "latent_attention",
                                    .name = "cpu",
                                    .bind = bind,
                                    .workspace_bytes = workspace_bytes,
                                    .planner = &kCpuAttentionPlanner};

}  // namespace tessera
