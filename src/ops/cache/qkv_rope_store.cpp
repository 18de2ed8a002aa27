#include "tessera/ops/cache/qkv_rope_store.h"

#include <fmt/format.h>

#include "tessera/ir/builder.h"
#include "tessera/ops/cache/cpu_cache_type.h"
#include "tessera/ops/cache/qkv_rope_store_args.h"
#include "tessera/ops/contract/shape_rule.h"
#include "tessera/ops/cpu/cpu_norm.h"
#include "tessera/ops/cpu/cpu_op.h"
#include "tessera/ops/cpu/row_loop.h"

namespace tessera {
namespace {

// The indices of the operands. The scales of the cache are not listed.
enum Operand : std::size_t { kQkv, kTable, kSlots, kKeyCache, kValueCache, kQueryWeight, kKeyWeight };

// Returns the size of the cache's heads, or 0 if the last dimension is a symbol or fits no head size.
std::int64_t head_dim_of(const ir::Type& cache) {
  return cache_head_dim(cache.dtype, cache.shape[3].constant().value_or(0));
}

Status check_heads(const ir::OpSignature& s, const ir::Type& cache) {
  const std::int64_t heads = s.node.attribute_or("heads", std::int64_t{0});
  const std::optional<std::int64_t> kv_heads = cache.shape[2].constant();
  const std::int64_t head_dim = head_dim_of(cache);
  if (heads <= 0) return refuse(s, fmt::format("heads = {}; it must be above 0", heads));
  if (!kv_heads || *kv_heads <= 0 || head_dim <= 0)
    return refuse(s, fmt::format("k_cache is {}; its heads and their size must be numbers above 0", cache.to_string()));
  const std::int64_t cols = TRY(constant_cols(s, kQkv, "qkv"));
  if (cols != (heads + 2 * *kv_heads) * head_dim)
    return refuse(s, fmt::format("rows of qkv have {} values; {} query heads, {} key heads and as many value heads of "
                                 "{} are {}",
                                 cols, heads, *kv_heads, head_dim, (heads + 2 * *kv_heads) * head_dim));
  const std::int64_t rotated = TRY(constant_cols(s, kTable, "table"));
  if (rotated % 2 != 0 || rotated > head_dim)
    return refuse(
        s, fmt::format("the table has {} columns; it must be even and at most the head size {}", rotated, head_dim));
  return ok_status();
}

Status check_weights(const ir::OpSignature& s, const ir::Type& weight) {
  const bool qk_norm = s.node.attribute_or("qk_norm", false);
  if (s.node.find_attribute("eps")) TRY(expect_positive(s, "eps"));
  const std::size_t expected = qk_norm ? kKeyWeight + 1 : kQueryWeight;
  const std::size_t operands = operands_before_scales(s.operands.size(), s.operands[kKeyCache].dtype);
  if (operands != expected)
    return refuse(s, fmt::format("qk_norm is {}, so it takes {} operands, not {}", qk_norm, expected, operands));
  if (!qk_norm) return ok_status();
  TRY(expect_type(s, kQueryWeight, "q_weight", weight));
  return expect_type(s, kKeyWeight, "k_weight", weight);
}

Result<std::vector<ir::Type>> infer(const ir::OpSignature& s) {
  const ir::Type& qkv = s.operands[kQkv];
  const ir::Type& cache = s.operands[kKeyCache];
  TRY(expect_floating(s, kQkv, "qkv"));
  TRY(expect_rank(s, kQkv, "qkv", 2));
  TRY(expect_rank(s, kTable, "table", 2));
  TRY(expect_type(s, kTable, "table", {ir::DType::kFloat32, {qkv.shape[0], s.operands[kTable].shape[1]}}));
  TRY(expect_type(s, kSlots, "slots", {ir::DType::kInt32, {qkv.shape[0]}}));
  if (!is_cache_type(cache.dtype))
    return refuse(s, fmt::format("k_cache is {}; it must be {}", cache.to_string(), kCacheTypes));
  TRY(expect_rank(s, kKeyCache, "k_cache", 4));
  TRY(expect_type(s, kValueCache, "v_cache", cache));
  TRY(check_heads(s, cache));
  TRY(check_cache_scales(s, cache.dtype, kQueryWeight, kKeyWeight + 1));
  TRY(check_weights(s, {qkv.dtype, {head_dim_of(cache)}}));
  const std::int64_t heads = s.node.attribute_or("heads", std::int64_t{0});
  return std::vector{ir::Type{qkv.dtype, {qkv.shape[0], heads * head_dim_of(cache)}}};
}

Result<std::vector<ir::ValueId>> decompose(ir::GraphBuilder& b, const ir::Node& node,
                                           std::span<const ir::ValueId> operands) {
  if (!b.ok()) return std::vector{operands[kQkv]};
  const ir::Type cache = b.type(operands[kKeyCache]);
  const std::int64_t head_dim = head_dim_of(cache);
  const std::int64_t q_cols = node.attribute_or("heads", std::int64_t{0}) * head_dim;
  const std::int64_t kv_cols = *cache.shape[2].constant() * head_dim;
  const std::vector<ir::ValueId> parts =
      b.multi_op("split", {operands[kQkv]}, {{"sizes", std::vector<std::int64_t>{q_cols, kv_cols, kv_cols}}});
  if (!b.ok()) return std::vector{operands[kQkv]};
  ir::ValueId q = parts[0];
  ir::ValueId k = parts[1];
  if (node.attribute_or("qk_norm", false)) {
    ir::Attributes norm{{"eps", node.attribute_or("eps", kDefaultQkNormEps)}};
    for (const char* form : {"round_once", "unit_offset"})
      if (node.attribute_or(form, false)) norm.emplace_back(form, true);
    q = b.op("head_norm", {q, operands[kQueryWeight]}, norm);
    k = b.op("head_norm", {k, operands[kKeyWeight]}, norm);
  }
  q = b.op("rotary", {q, operands[kTable]}, {{"head_dim", head_dim}});
  k = b.op("rotary", {k, operands[kTable]}, {{"head_dim", head_dim}});
  std::vector<ir::ValueId> stored{k, parts[2], operands[kSlots], operands[kKeyCache], operands[kValueCache]};
  const auto scales = operands_before_scales(operands.size(), cache.dtype);
  stored.insert(stored.end(), operands.begin() + static_cast<std::ptrdiff_t>(scales), operands.end());
  b.op("kv_store", stored);
  return std::vector{q};
}

// The norm's weights for one head.
template <class X>
struct HeadWeight {
  const X* at;  // [head_dim]; null without a norm
  float eps;
  NormForm form;
};

// Returns element i of a head before the rotation. The element is normalised if kNorm.
template <bool kNorm, class X>
TESSERA_INLINE float element(const X* x, const HeadWeight<X>& w, float scale, std::int64_t i) {
  if constexpr (kNorm) return to_float(from_float<X>(normalised(x[i], w.at[i], scale, w.form)));
  return to_float(x[i]);
}

// Processes one head of `n` elements. Its first 2·half elements are rotated. `cosines` has the cosines of the `half`
// angles, and then the sines.
template <bool kNorm, class X>
TESSERA_CPU_CLONES void turn_head(const X* x, const HeadWeight<X>& w, const float* cosines, X* y, std::int64_t n,
                                  std::int64_t half) {
  const float* sines = cosines + half;
  const float scale = kNorm ? rms_scale(x, n, w.eps) : 1.0f;
#pragma omp simd
  for (std::int64_t i = 0; i < half; ++i) {
    const float a = element<kNorm>(x, w, scale, i);
    const float b = element<kNorm>(x, w, scale, i + half);
    y[i] = from_float<X>(a * cosines[i] - b * sines[i]);
    y[i + half] = from_float<X>(b * cosines[i] + a * sines[i]);
  }
#pragma omp simd
  for (std::int64_t i = 2 * half; i < n; ++i) y[i] = from_float<X>(element<kNorm>(x, w, scale, i));
}

// Converts `n` numbers to the cache's type.
template <class X, class Y>
TESSERA_CPU_CLONES void store_values(const X* x, float cache_scale, Y* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = to_cache<Y>(to_float(x[i]), cache_scale);
}

template <class X, class Y>
struct Kernel : QkvRopeStoreArgs<X, Y> {
  void operator()() const {
    const std::int64_t row_bytes = 2 * this->row_heads() * this->head_dim * static_cast<std::int64_t>(sizeof(X));
    parallel_rows(this->num_tokens, row_bytes, [this](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = begin; t < end; ++t) run(t);
    });
  }

  void run(std::int64_t t) const {
    const std::int64_t n = this->head_dim;
    const X* queries = this->qkv + t * this->row_heads() * n;
    X* q = this->q + t * this->heads * n;
    const std::int64_t slot = this->slots[t];
    if (slot >= 0 && slot < this->num_slots) {
      // The keys are stored before the queries. If the cache has another type than the activations, a key is first
      // rotated into the output memory of the first query. The query overwrites this memory later.
      const X* keys = queries + this->heads * n;
      for (std::int64_t h = 0; h < this->kv_heads; ++h) store_key(keys + h * n, t, q, slot, h);
      store(keys + this->kv_heads * n, this->scales.values, this->v_cache, slot, 0, this->kv_heads);
    }
    for (std::int64_t h = 0; h < this->heads; ++h) turn(queries + h * n, this->q_weight, t, q + h * n);
  }

  void store_key(const X* x, std::int64_t t, [[maybe_unused]] X* rotated, std::int64_t slot, std::int64_t head) const {
    if constexpr (std::is_same_v<X, Y>) {
      turn(x, this->k_weight, t, this->k_cache + (slot * this->kv_heads + head) * this->head_dim);
    } else {
      turn(x, this->k_weight, t, rotated);
      store(rotated, this->scales.keys, this->k_cache, slot, head, 1);
    }
  }

  // Converts the heads [head, head + heads) of a token to the cache's type, and stores them. In caches of all types but
  // int8, the heads of a token lie next to each other.
  void store(const X* x, [[maybe_unused]] const float* scale, Y* cache, std::int64_t slot, std::int64_t head,
             std::int64_t heads) const {
    if constexpr (std::is_same_v<Y, Int8Cache>) {
      store_int8(x, cache, {this->page_size, this->kv_heads, this->head_dim}, slot, head, heads);
    } else {
      store_values(x, scale_or_one(scale), cache + (slot * this->kv_heads + head) * this->head_dim,
                   heads * this->head_dim);
    }
  }

  void turn(const X* x, const X* weight, std::int64_t t, X* y) const {
    const float* cosines = this->table + t * 2 * this->half;
    const HeadWeight<X> w{.at = weight, .eps = this->eps, .form = this->form};
    if (weight != nullptr)
      turn_head<true>(x, w, cosines, y, this->head_dim, this->half);
    else
      turn_head<false>(x, w, cosines, y, this->head_dim, this->half);
  }
};

Result<std::unique_ptr<BoundOp>> bind(const BindArgs& args) {
  using Bound = Result<std::unique_ptr<BoundOp>>;
  return dispatch_dtype(args.operands[kQkv].dtype, "qkv_rope_store", [&]<class X>() -> Bound {
    return dispatch_cache_type(args.operands[kKeyCache].dtype, "qkv_rope_store's cache", [&]<class Y>() -> Bound {
      return make_cpu_op("qkv_rope_store", Kernel<X, Y>{qkv_rope_store_args<X, Y>(args)});
    });
  });
}

}  // namespace

const ir::OpDecl kQkvRopeStore{
    .name = "qkv_rope_store",
    .summary =
        "q = rotary(head_norm(queries)), the same to k_cache[slots], values to v_cache[slots]: [T, (Hq+2*Hkv)*D] "
        "-> [T, Hq*D]",
    .operands = {{.name = "qkv"},
                 {.name = "table"},
                 {.name = "slots"},
                 {.name = "k_cache", .mutated = true},
                 {.name = "v_cache", .mutated = true},
                 {.name = "q_weight", .optional = true},
                 {.name = "k_weight", .optional = true},
                 {.name = "k_scale", .optional = true},
                 {.name = "v_scale", .optional = true}},
    .attributes = {{"heads", ir::AttributeKind::kInt, true},
                   {"eps", ir::AttributeKind::kDouble},
                   {"qk_norm", ir::AttributeKind::kBool},
                   {"round_once", ir::AttributeKind::kBool},
                   {"unit_offset", ir::AttributeKind::kBool}},
    .infer = infer,
    .decompose = decompose,
};

const KernelDef kQkvRopeStoreCpu{.op = "qkv_rope_store", .name = "cpu", .bind = bind};

}  // namespace tessera
