#include "tessera/ops/latent_store.h"

#include <fmt/format.h>

#include "tessera/ops/cpu_norm.h"
#include "tessera/ops/cpu_op.h"
#include "tessera/ops/row_loop.h"
#include "tessera/ops/shape_rule.h"

namespace tessera {
namespace {

// In declaration order.
enum Operand : std::size_t { kQ, kKv, kWeight, kTable, kSlots, kCache, kQuery };

Status check_queries(const ir::OpSignature& s, std::int64_t latent, std::int64_t rotated) {
  const std::int64_t q_cols = TRY(constant_cols(s, kQ, "q"));
  const std::int64_t query_cols = TRY(constant_cols(s, kQuery, "query"));
  const std::int64_t width = latent + rotated;
  if (query_cols % width != 0)
    return refuse(
        s, fmt::format("rows of query have {} values, no multiple of the {} + {} of kv", query_cols, latent, rotated));
  const std::int64_t heads = query_cols / width;
  if (q_cols % heads != 0 || q_cols / heads <= rotated)
    return refuse(s, fmt::format("rows of q have {} values, which are not {} heads of more than the {} that are "
                                 "rotated",
                                 q_cols, heads, rotated));
  return ok_status();
}

Result<std::vector<ir::Type>> infer(const ir::OpSignature& s) {
  const ir::Type& q = s.operands[kQ];
  TRY(expect_floating(s, kQ, "q"));
  TRY(expect_rank(s, kQ, "q", 2));
  TRY(expect_rank(s, kWeight, "weight", 1));
  TRY(expect_type(s, kWeight, "weight", {q.dtype, s.operands[kWeight].shape}));
  TRY(expect_rank(s, kTable, "table", 2));
  TRY(expect_type(s, kTable, "table", {ir::DType::kFloat32, {q.shape[0], s.operands[kTable].shape[1]}}));
  const std::int64_t latent = TRY(constant_cols(s, kWeight, "weight"));
  const std::int64_t rotated = TRY(constant_cols(s, kTable, "table"));
  if (rotated % 2 != 0) return refuse(s, fmt::format("the table has {} columns; it must be even", rotated));
  TRY(expect_type(s, kKv, "kv", {q.dtype, {q.shape[0], latent + rotated}}));
  TRY(expect_type(s, kSlots, "slots", {ir::DType::kInt32, {q.shape[0]}}));
  const ir::Type& cache = s.operands[kCache];
  TRY(expect_floating(s, kCache, "cache"));
  TRY(expect_rank(s, kCache, "cache", 3));
  TRY(expect_type(s, kCache, "cache", {cache.dtype, {cache.shape[0], cache.shape[1], latent + rotated}}));
  TRY(expect_rank(s, kQuery, "query", 2));
  TRY(expect_type(s, kQuery, "query", {q.dtype, {q.shape[0], s.operands[kQuery].shape[1]}}));
  TRY(check_queries(s, latent, rotated));
  TRY(expect_positive(s, "eps"));
  return std::vector<ir::Type>{};
}

// The value of type X, in the cache's type.
template <class X, class Y>
TESSERA_INLINE Y stored(float value) {
  return from_float<Y>(to_float(from_float<X>(value)));
}

// Pairs (x[first · i], x[first · i + second]) of `half`, by the angles of cosines [half] and the sines after them.
template <class X, class Y>
TESSERA_INLINE void turn(const X* x, const float* cosines, Y* y, std::int64_t half, std::int64_t first,
                         std::int64_t second) {
  const float* sines = cosines + half;
#pragma omp simd
  for (std::int64_t i = 0; i < half; ++i) {
    const float a = to_float(x[first * i]);
    const float b = to_float(x[first * i + second]);
    y[first * i] = stored<X, Y>(a * cosines[i] - b * sines[i]);
    y[first * i + second] = stored<X, Y>(b * cosines[i] + a * sines[i]);
  }
}

// `interleaved` is a constant where each call is inlined, so that both loops vectorise.
template <class X, class Y>
TESSERA_INLINE void rotate(const LatentStoreArgs<X, Y>& a, const X* x, const float* cosines, auto* y) {
  const std::int64_t half = a.rotated / 2;
  if (a.interleaved)
    turn(x, cosines, y, half, 2, 1);
  else
    turn(x, cosines, y, half, 1, half);
}

template <class X, class Y>
TESSERA_CPU_CLONES void store_tokens(const LatentStoreArgs<X, Y>& a, std::int64_t begin, std::int64_t end) {
  for (std::int64_t t = begin; t < end; ++t) {
    const float* cosines = a.table + t * a.rotated;
    for (std::int64_t h = 0; h < a.heads; ++h)
      rotate(a, a.q + (t * a.heads + h + 1) * a.q_dim - a.rotated, cosines,
             a.query + (t * a.heads + h) * a.width() + a.latent);
    const std::int64_t slot = a.slots[t];
    if (slot < 0 || slot >= a.num_slots) continue;
    const X* kv = a.kv + t * a.width();
    Y* row = a.cache + slot * a.width();
    const float scale = rms_scale(kv, a.latent, a.eps);
#pragma omp simd
    for (std::int64_t i = 0; i < a.latent; ++i)
      row[i] = stored<X, Y>(normalised(kv[i], a.weight[i], scale, NormForm::kRoundFirst));
    rotate(a, kv + a.latent, cosines, row + a.latent);
  }
}

Result<std::unique_ptr<BoundOp>> bind(const BindArgs& args) {
  using Bound = Result<std::unique_ptr<BoundOp>>;
  return dispatch_dtype(args.operands[kQ].dtype, "latent_store", [&]<class X>() -> Bound {
    return dispatch_dtype(args.operands[kCache].dtype, "latent_store's cache", [&]<class Y>() -> Bound {
      return make_cpu_op("latent_store", [a = latent_store_args<X, Y>(args)] {
        const std::int64_t elements = 2 * (a.heads * a.rotated + a.width());
        parallel_rows(a.num_tokens, elements * static_cast<std::int64_t>(sizeof(X)),
                      [&](std::int64_t begin, std::int64_t end) { store_tokens(a, begin, end); });
      });
    });
  });
}

}  // namespace

const ir::OpDecl kLatentStore{
    .name = "latent_store",
    .summary =
        "cache[slots[t]] = rms_norm(kv[t, :C]), rotary(kv[t, C:]); query[t, h, C:] = rotary(q[t, h, N:]); q [T, "
        "H*(N+R)], kv [T, C+R], query [T, H*(C+R)]",
    .operands = {{.name = "q"},
                 {.name = "kv"},
                 {.name = "weight"},
                 {.name = "table"},
                 {.name = "slots"},
                 {.name = "cache", .mutated = true},
                 {.name = "query", .mutated = true}},
    .attributes = {{"eps", ir::AttributeKind::kDouble, true}, {"interleaved", ir::AttributeKind::kBool}},
    .infer = infer,
};

const KernelDef kLatentStoreCpu{.op = "latent_store", .name = "cpu", .bind = bind};

}  // namespace tessera
