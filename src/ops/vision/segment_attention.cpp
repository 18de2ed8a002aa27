#include "tessera/ops/vision/segment_attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/base/ceil_div.h"
#include "tessera/device/cpu/parallel.h"
#include "tessera/ops/contract/shape_rule.h"
#include "tessera/ops/cpu/cpu_math.h"
#include "tessera/ops/cpu/cpu_op.h"
#include "tessera/ops/cpu/cpu_vector.h"

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
    return refuse(s, fmt::format("the {} columns of qkv cannot be divided into queries, keys and values of {} heads",
                                 cols, heads));
  const std::int64_t head_dim = cols / (3 * heads);
  if (head_dim % 4 != 0 || head_dim > kMaxSegmentHeadDim)
    return refuse(s,
                  fmt::format("heads of {} values; accepted: multiples of 4 up to {}", head_dim, kMaxSegmentHeadDim));
  return std::vector{ir::Type{qkv.dtype, {qkv.shape[0], cols / 3}}};
}

constexpr std::int64_t kRows = kVecFloats;  // number of rows that are computed together, one in each vector lane
constexpr std::int64_t kKeys = 32;          // number of keys whose scores are held at a time
constexpr std::int64_t kSums = 4;           // number of sums that are computed together

template <class T>
struct Problem {
  const T* qkv;                // [rows, 3, heads, dim]
  const std::int32_t* ranges;  // [rows, 2]
  T* out;                      // [rows, heads, dim]
  std::int64_t rows;
  std::int64_t heads;
  std::int64_t dim;

  const std::int32_t* range(std::int64_t row) const { return ranges + 2 * row; }
};

TESSERA_INLINE Vec16 exp16(Vec16 const& x) {
  float lanes[kVecFloats];
  store16(lanes, x);
#pragma omp simd
  for (std::int64_t i = 0; i < kVecFloats; ++i) lanes[i] = fast_exp(lanes[i]);
  return load16(lanes);
}

// Copies the keys or values of one head to `to` [keys, dim] as floats. In `from`, each key or value begins `stride`
// elements after the previous one.
template <class T>
TESSERA_INLINE void gather_head(const T* from, std::int64_t stride, std::int64_t keys, std::int64_t dim, float* to) {
  for (std::int64_t k = 0; k < keys; ++k)
    for (std::int64_t i = 0; i < dim; ++i) to[k * dim + i] = to_float(from[k * stride + i]);
}

// Computes the scores of kCount keys, each for all rows that are computed together.
template <std::int64_t kCount>
TESSERA_INLINE void score_keys(const Vec16* q, const float* keys, std::int64_t dim, Vec16* scores) {
  Vec16 sums[kCount] = {};
  for (std::int64_t i = 0; i < dim; ++i)
#pragma GCC unroll 4
    for (std::int64_t k = 0; k < kCount; ++k) sums[k] += q[i] * keys[k * dim + i];
  std::copy_n(sums, kCount, scores);
}

// Computes at most kRows neighbouring rows of one head, which all have the same range. Keys are processed in blocks,
// from the first key of the range on. Each row has one lane of the vectors, and lanes do not affect each other.
template <class T>
TESSERA_CPU_CLONES void attend_rows(const Problem<T>& p, std::int64_t row, std::int64_t rows, std::int64_t head) {
  Vec16 q[kMaxSegmentHeadDim];
  Vec16 sum[kMaxSegmentHeadDim];
  Vec16 weights[kKeys];
  float block[kKeys * kMaxSegmentHeadDim];
  const std::int64_t dim = p.dim;
  const std::int64_t width = p.heads * dim;
  const T* const query = p.qkv + row * 3 * width + head * dim;
  const float scale = 1.0F / std::sqrt(static_cast<float>(dim));
  for (std::int64_t i = 0; i < dim; ++i) {
    q[i] = sum[i] = Vec16{};
    for (std::int64_t lane = 0; lane < rows; ++lane) q[i][lane] = to_float(query[lane * 3 * width + i]) * scale;
  }

  const std::int64_t begin = std::max<std::int64_t>(p.range(row)[0], 0);
  const std::int64_t end = std::min<std::int64_t>(p.range(row)[1], p.rows);
  Vec16 greatest = splat16(-std::numeric_limits<float>::infinity());
  Vec16 total{};
  for (std::int64_t first = begin; first < end; first += kKeys) {
    const std::int64_t keys = std::min(kKeys, end - first);
    const T* const key = p.qkv + first * 3 * width + width + head * dim;
    gather_head(key, 3 * width, keys, dim, block);
    std::int64_t scored = 0;
    for (; scored + kSums <= keys; scored += kSums) score_keys<kSums>(q, block + scored * dim, dim, weights + scored);
    for (; scored < keys; ++scored) score_keys<1>(q, block + scored * dim, dim, weights + scored);

    Vec16 most = greatest;
    for (std::int64_t k = 0; k < keys; ++k) most = weights[k] > most ? weights[k] : most;
    const Vec16 shrink = exp16(greatest - most);
    greatest = most;
    total *= shrink;
    for (std::int64_t k = 0; k < keys; ++k) total += weights[k] = exp16(weights[k] - most);
    gather_head(key + width, 3 * width, keys, dim, block);
    for (std::int64_t i = 0; i < dim; i += kSums) {
      Vec16 sums[kSums];
      for (std::int64_t j = 0; j < kSums; ++j) sums[j] = sum[i + j] * shrink;
      for (std::int64_t k = 0; k < keys; ++k)
#pragma GCC unroll 4
        for (std::int64_t j = 0; j < kSums; ++j) sums[j] += weights[k] * block[k * dim + i + j];
      std::copy_n(sums, kSums, sum + i);
    }
  }

  T* const out = p.out + row * width + head * dim;
  for (std::int64_t lane = 0; lane < rows; ++lane) {
    const float inverse = total[lane] > 0 ? 1.0F / total[lane] : 0.0F;
    for (std::int64_t i = 0; i < dim; ++i) out[lane * width + i] = from_float<T>(sum[i][lane] * inverse);
  }
}

// Computes rows begin … end - 1 of one head. Neighbouring rows with the same range are computed together.
template <class T>
void attend_range(const Problem<T>& p, std::int64_t begin, std::int64_t end, std::int64_t head) {
  while (begin < end) {
    std::int64_t next = begin + 1;
    while (next < end && std::equal(p.range(begin), p.range(begin) + 2, p.range(next))) ++next;
    attend_rows(p, begin, next - begin, head);
    begin = next;
  }
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
                            const std::int64_t blocks = ceil_div(p.rows, kRows);
                            parallel_for(blocks * p.heads, 1, [&](std::int64_t begin, std::int64_t end) {
                              for (std::int64_t i = begin; i < end; ++i) {
                                const std::int64_t row = i % blocks * kRows;
                                attend_range(p, row, std::min(row + kRows, p.rows), i / blocks);
                              }
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
