// The CPU's kernel is attention's own (attention_cpu.h), with one KV head whose values are a part of its keys.
#include "tessera/ops/latent_attention.h"

#include <fmt/format.h>

#include "tessera/ops/attention_cpu.h"
#include "tessera/ops/shape_rule.h"

namespace tessera {
namespace {

Status check_cache(const ir::OpSignature& s) {
  TRY(expect_floating(s, 1, "cache"));
  TRY(expect_rank(s, 1, "cache", 3));
  const ir::Type& cache = s.operands[1];
  if (cache.shape[1].constant().value_or(0) < 1 || cache.shape[2].constant().value_or(0) < 1)
    return refuse(s, fmt::format("cache is {}; page size and columns must be numbers above 0", cache.to_string()));
  return ok_status();
}

Result<std::vector<ir::Type>> infer(const ir::OpSignature& s) {
  const ir::Type& q = s.operands[0];
  const ir::Type& out = s.operands[2];
  TRY(expect_floating(s, 0, "q"));
  TRY(expect_rank(s, 0, "q", 2));
  TRY(check_cache(s));
  TRY(expect_rank(s, 2, "out", 2));
  TRY(expect_type(s, 2, "out", {q.dtype, {q.shape[0], out.shape[1]}}));
  const std::int64_t width = *s.operands[1].shape[2].constant();
  const std::int64_t q_cols = TRY(constant_cols(s, 0, "q"));
  const std::int64_t out_cols = TRY(constant_cols(s, 2, "out"));
  if (q_cols % width != 0)
    return refuse(s, fmt::format("rows of q have {} values, no multiple of the cache's {} columns", q_cols, width));
  const std::int64_t heads = q_cols / width;
  if (out_cols % heads != 0 || out_cols / heads > width)
    return refuse(s,
                  fmt::format("rows of out have {} values, which is no part of the cache's {} columns for each of {} "
                              "heads",
                              out_cols, width, heads));
  const std::int64_t group = s.node.attribute_or("group", std::int64_t{0});
  if (group < 0) return refuse(s, fmt::format("group is {}; cache groups count from 0", group));
  TRY(expect_positive(s, "scale"));
  return std::vector<ir::Type>{};
}

Result<std::size_t> workspace_bytes(const BindArgs& args) {
  return attention_workspace_bytes(args, args.operands[1].dim(2));
}

Result<std::unique_ptr<BoundOp>> bind(const BindArgs& args) {
  const LatentSizes sizes = latent_sizes(args);
  const TensorView& cache = args.operands[1];
  AttentionProblem p{};
  p.q = args.operands[0].data.raw();
  p.k_cache = p.v_cache = cache.data.raw();
  p.out = args.operands[2].data.raw();
  p.num_rows = args.operands[0].dim(0);
  p.heads = sizes.heads;
  p.kv_heads = 1;
  p.head_dim = sizes.width;
  p.value_dim = sizes.latent;
  p.page_size = sizes.page_size;
  p.scale = static_cast<float>(args.node.attribute_or("scale", 1.0));
  return bind_attention_tiles(args, p, cache.dtype, "latent_attention");
}

}  // namespace

LatentSizes latent_sizes(const BindArgs& args) {
  const TensorView& cache = args.operands[1];
  const std::int64_t heads = args.operands[0].dim(1) / cache.dim(2);
  return {.heads = heads, .width = cache.dim(2), .latent = args.operands[2].dim(1) / heads, .page_size = cache.dim(1)};
}

const ir::OpDecl kLatentAttention{
    .name = "latent_attention",
    .summary =
        "out = softmax(scale * q row^T) row[:C] over a paged latent cache; q [T, H*(C+R)], cache [P, page_size, "
        "C+R], out [T, H*C]",
    .operands = {{.name = "q"}, {.name = "cache"}, {.name = "out", .mutated = true}},
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
