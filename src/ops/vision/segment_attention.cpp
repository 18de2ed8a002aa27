#include "tessera/ops/vision/segment_attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/device/cpu/parallel.h"
#include "tessera/ops/contract/shape_rule.h"
#include "tessera/ops/cpu/cpu_math.h"
#include "tessera/ops/cpu/cpu_op.h"

namespace tessera {
namespace {

Result<std::vector<ir::Type>> infer_segment_attention(const ir::OpSignature& s) {
  const ir::Type& qkv = s.operands[0];
  TRY(expect_floating(s, 0, "qkv"));
  TRY(expect_rank(s, 0, "qkv", 2));
  TRY(expect_type(s, 1, "ranges", {ir::DType::kInt32, {qkv.shape[0], 2}}));
  const std::int64_t cols = TRY(constant_cols(s, 0, "qkv"));
  const std::int64_t heads = s.node.attribute_or("heads", std::int64_t{0});
  if (heads <= 0 || cols % (3 * heads) != 0)
    return refuse(s, fmt::format("the {} columns of qkv are no queries, keys and values of {} heads", cols, heads));
  const std::int64_t head_dim = cols / (3 * heads);
  if (head_dim % 4 != 0 || head_dim > kMaxSegmentHeadDim)
    return refuse(s,
                  fmt::format("heads of {} values; accepted: multiples of 4 up to {}", head_dim, kMaxSegmentHeadDim));
  return std::vector{ir::Type{qkv.dtype, {qkv.shape[0], cols / 3}}};
}

constexpr std::int64_t kKeys = 64;  // keys whose scores are held at once

template <class T>
struct Problem {
  const T* qkv;                // [rows, 3, heads, dim]
  const std::int32_t* ranges;  // [rows, 2]
  T* out;                      // [rows, heads, dim]
  std::int64_t rows;
  std::int64_t heads;
  std::int64_t dim;
};

// Computes one row of one head. Keys are taken in blocks from the range's begin.
template <class T>
TESSERA_CPU_CLONES void attend_row(const Problem<T>& p, std::int64_t row, std::int64_t head) {
  float q[kMaxSegmentHeadDim];
  float sum[kMaxSegmentHeadDim] = {};
  float weights[kKeys];
  const std::int64_t width = p.heads * p.dim;
  const T* const query = p.qkv + row * 3 * width + head * p.dim;
  const float scale = 1.0F / std::sqrt(static_cast<float>(p.dim));
  for (std::int64_t i = 0; i < p.dim; ++i) q[i] = to_float(query[i]) * scale;

  const std::int64_t begin = std::max<std::int64_t>(p.ranges[2 * row], 0);
  const std::int64_t end = std::min<std::int64_t>(p.ranges[2 * row + 1], p.rows);
  float greatest = -std::numeric_limits<float>::infinity();
  float total = 0;
  for (std::int64_t first = begin; first < end; first += kKeys) {
    const std::int64_t keys = std::min(kKeys, end - first);
    const T* const key = p.qkv + first * 3 * width + width + head * p.dim;
    float most = greatest;
    for (std::int64_t k = 0; k < keys; ++k) {
      const T* const values = key + k * 3 * width;
      float score = 0;
#pragma omp simd reduction(+ : score)
      for (std::int64_t i = 0; i < p.dim; ++i) score += q[i] * to_float(values[i]);
      weights[k] = score;
      most = std::max(most, score);
    }
    const float shrink = fast_exp(greatest - most);
    greatest = most;
    total *= shrink;
    for (std::int64_t i = 0; i < p.dim; ++i) sum[i] *= shrink;
    for (std::int64_t k = 0; k < keys; ++k) {
      const float weight = fast_exp(weights[k] - most);
      const T* const values = key + k * 3 * width + width;
      total += weight;
#pragma omp simd
      for (std::int64_t i = 0; i < p.dim; ++i) sum[i] += weight * to_float(values[i]);
    }
  }
  T* const out = p.out + row * width + head * p.dim;
  const float inverse = total > 0 ? 1.0F / total : 0.0F;
  for (std::int64_t i = 0; i < p.dim; ++i) out[i] = from_float<T>(sum[i] * inverse);
}

Result<std::unique_ptr<BoundOp>> bind_segment_attention(const BindArgs& args) {
  return dispatch_dtype(args.operands[0].dtype, "segment_attention",
                        [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
                          const std::int64_t heads = args.node.attribute_or("heads", std::int64_t{0});
                          const Problem<T> p{.qkv = args.operands[0].as<T>(),
                                             .ranges = args.operands[1].as<std::int32_t>(),
                                             .out = args.results[0].as<T>(),
                                             .rows = args.operands[0].dim(0),
                                             .heads = heads,
                                             .dim = args.results[0].dim(1) / heads};
                          return make_cpu_op("segment_attention", [p] {
                            parallel_for(p.rows * p.heads, 1, [&](std::int64_t begin, std::int64_t end) {
                              for (std::int64_t i = begin; i < end; ++i) attend_row(p, i % p.rows, i / p.rows);
                            });
                          });
                        });
}

}  // namespace

const ir::OpDecl kSegmentAttention{
    .name = "segment_attention",
    .summary = "softmax(q k^T / sqrt(D)) v over each row's range of rows: [S, 3HD], i32[S, 2] -> [S, HD]",
    .operands = {{"qkv"}, {"ranges"}},
    .attributes = {{"heads", ir::AttributeKind::kInt, true}},
    .infer = infer_segment_attention,
};

const KernelDef kSegmentAttentionCpu{.op = "segment_attention", .name = "cpu", .bind = bind_segment_attention};

}  // namespace tessera
