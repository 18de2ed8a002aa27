#include "tessera/ops/latent/latent_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>

#include "tessera/ops/contract/shape_rule.h"
#include "tessera/ops/cpu/cpu_norm.h"
#include "tessera/ops/cpu/cpu_op.h"
#include "tessera/ops/cpu/row_loop.h"
#include "tessera/ops/latent/latent_rotation.h"

namespace tessera {
namespace {

// The operands, in the order of the declaration.
enum Operand : std::size_t { kX, kWeight, kTable, kSlots, kCache, kQWeight, kQ };

Status check_q(const ir::OpSignature& s) {
  if (s.operands.size() <= kQWeight) return ok_status();
  if (s.operands.size() == kQ) return refuse(s, "q_weight is given without q");
  const ir::Type& x = s.operands[kX];
  TRY(expect_rank(s, kQWeight, "q_weight", 1));
  const ir::Type& weight = s.operands[kQWeight];
  TRY(expect_type(s, kQWeight, "q_weight", {x.dtype, weight.shape}));
  return expect_type(s, kQ, "q", {x.dtype, {x.shape[0], weight.shape[0]}});
}

Result<std::vector<ir::Type>> infer(const ir::OpSignature& s) {
  const ir::Type& x = s.operands[kX];
  TRY(expect_floating(s, kX, "x"));
  TRY(expect_rank(s, kX, "x", 2));
  TRY(expect_rank(s, kWeight, "weight", 1));
  TRY(expect_type(s, kWeight, "weight", {x.dtype, s.operands[kWeight].shape}));
  TRY(expect_rank(s, kTable, "table", 2));
  TRY(expect_type(s, kTable, "table", {ir::DType::kFloat32, {x.shape[0], s.operands[kTable].shape[1]}}));
  const std::int64_t latent = TRY(constant_cols(s, kWeight, "weight"));
  const std::int64_t rotated = TRY(constant_cols(s, kTable, "table"));
  if (rotated % 2 != 0) return refuse(s, fmt::format("the table has {} columns; it must be even", rotated));
  TRY(expect_type(s, kSlots, "slots", {ir::DType::kInt32, {x.shape[0]}}));
  const ir::Type& cache = s.operands[kCache];
  TRY(expect_floating(s, kCache, "cache"));
  TRY(expect_rank(s, kCache, "cache", 3));
  TRY(expect_type(s, kCache, "cache", {cache.dtype, {cache.shape[0], cache.shape[1], latent + rotated}}));
  TRY(check_q(s));
  const std::int64_t q_latent = s.operands.size() > kQ ? TRY(constant_cols(s, kQWeight, "q_weight")) : 0;
  const std::int64_t x_cols = TRY(constant_cols(s, kX, "x"));
  if (x_cols < q_latent + latent + rotated)
    return refuse(s,
                  fmt::format("rows of x have {} values, fewer than {} + {} + {}", x_cols, q_latent, latent, rotated));
  TRY(expect_positive(s, "eps"));
  return std::vector<ir::Type>{};
}

template <class X>
TESSERA_CPU_CLONES float scale_of(const X* x, std::int64_t size, float eps) {
  return rms_scale(x, size, eps);
}

template <class X>
TESSERA_CPU_CLONES void normalise_by(float scale, const X* x, const X* weight, std::int64_t size, X* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < size; ++i)
    y[i] = from_float<X>(normalised(x[i], weight[i], scale, NormForm::kRoundFirst));
}

template <class X, class Y>
TESSERA_CPU_CLONES void convert(const X* x, std::int64_t size, Y* y) {
  for (std::int64_t i = 0; i < size; ++i) y[i] = from_float<Y>(to_float(x[i]));
}

// Normalises a row in type X, and stores it in type Y. If Y is not X, the row is normalised in blocks of type X, which
// are then converted to Y. So the norm is compiled only for X.
template <class X, class Y>
void normalise(const X* x, const X* weight, std::int64_t size, float eps, Y* y) {
  const float scale = scale_of(x, size, eps);
  if constexpr (std::is_same_v<X, Y>) {
    normalise_by(scale, x, weight, size, y);
  } else {
    constexpr std::int64_t kBlock = 256;
    X block[kBlock];
    for (std::int64_t begin = 0; begin < size; begin += kBlock) {
      const std::int64_t count = std::min(kBlock, size - begin);
      normalise_by(scale, x + begin, weight + begin, count, block);
      convert(block, count, y + begin);
    }
  }
}

template <class X, class Y>
TESSERA_CPU_CLONES void rotate(const X* x, const float* cosines, std::int64_t half, bool interleaved, Y* y) {
  turn(x, cosines, y, half, interleaved);
}

template <class X, class Y>
void store_tokens(const LatentStoreArgs<X, Y>& a, std::int64_t begin, std::int64_t end) {
  for (std::int64_t t = begin; t < end; ++t) {
    const X* x = a.x + t * a.x_width;
    if (a.q_latent > 0) normalise(x, a.q_weight, a.q_latent, a.eps, a.q + t * a.q_latent);
    const std::int64_t slot = a.slots[t];
    if (slot < 0 || slot >= a.num_slots) continue;
    const X* kv = x + a.x_width - a.width();
    Y* row = a.cache + slot * a.width();
    normalise(kv, a.weight, a.latent, a.eps, row);
    rotate(kv + a.latent, a.table + t * a.rotated, a.rotated / 2, a.interleaved, row + a.latent);
  }
}

Result<std::unique_ptr<BoundOp>> bind(const BindArgs& args) {
  using Bound = Result<std::unique_ptr<BoundOp>>;
  return dispatch_dtype(args.operands[kX].dtype, "latent_store", [&]<class X>() -> Bound {
    return dispatch_dtype(args.operands[kCache].dtype, "latent_store's cache", [&]<class Y>() -> Bound {
      return make_cpu_op("latent_store", [a = latent_store_args<X, Y>(args)] {
        const std::int64_t elements = 2 * (a.q_latent + a.width());
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
        "cache[slots[t]] = rms_norm(x[t, -(C+R):-R]), rotary(x[t, -R:]); q[t] = rms_norm(x[t, :Q]); x [T, W], weight "
        "[C], table [T, R], cache [P, page_size, C+R], q [T, Q]",
    .operands = {{.name = "x"},
                 {.name = "weight"},
                 {.name = "table"},
                 {.name = "slots"},
                 {.name = "cache", .mutated = true},
                 {.name = "q_weight", .optional = true},
                 {.name = "q", .mutated = true, .optional = true}},
    .attributes = {{"eps", ir::AttributeKind::kDouble, true}, {"interleaved", ir::AttributeKind::kBool}},
    .infer = infer,
};

const KernelDef kLatentStoreCpu{.op = "latent_store", .name = "cpu", .bind = bind};

}  // namespace tessera
