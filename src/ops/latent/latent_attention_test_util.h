// Utilities for latent attention's tests: operands over a shuffled paged cache, a plan on the device under test, and a
// reference in double precision.
#pragma once

#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "tessera/ops/attention/attention_test_util.h"
#include "tessera/ops/latent/latent_attention.h"
#include "tessera/ops/rows/row_test_util.h"

namespace tessera::testing {

struct LatentConfig {
  ir::DType dtype = ir::DType::kFloat32;
  ir::DType cache_dtype = ir::DType::kFloat32;
  std::int64_t heads = 4;
  std::int64_t latent = 32;
  std::int64_t rotated = 16;
  std::int64_t key = 24;    // size of the part of a head's key that is made from a latent
  std::int64_t value = 16;  // size of a head of the output
  std::int64_t page_size = 16;
  double scale = 0.1;
  std::int64_t padded_rows = 3;
  bool interleaved = false;
  std::int64_t more_q = 8;  // elements of a row of q after its heads

  std::int64_t q_columns() const { return heads * (key + rotated) + more_q; }
  std::int64_t width() const { return latent + rotated; }
  ir::Attributes attributes() const {
    return {{"group", std::int64_t{0}}, {"scale", scale}, {"interleaved", interleaved}};
  }
  // Returns the config of the equivalent attention, with one KV head that has the cache's rows as keys and values.
  Config attention() const {
    return {.dtype = dtype,
            .cache_dtype = cache_dtype,
            .heads = heads,
            .kv_heads = 1,
            .head_dim = width(),
            .page_size = page_size,
            .scale = scale,
            .padded_rows = padded_rows};
  }
};

// The device under test with the operator's plan.
class LatentBench {
 public:
  explicit LatentBench(const LatentConfig& c, bool deterministic = false, BatchKind kind = BatchKind::kExtend) {
    context.limits = {.max_requests = kMaxRequests,
                      .max_tokens = kMaxTokens,
                      .max_pages_per_request = kMaxPages,
                      .page_size = c.page_size,
                      .deterministic = deterministic};
    context.batch_kind = kind;
    node_ = make_node(kLatentAttention, 6, c.attributes());
    const PlannedNode planned{.node = &node_,
                              .operands = {{c.dtype, {ir::Symbol::kTokens, c.q_columns()}},
                                           {ir::DType::kFloat32, {ir::Symbol::kTokens, c.rotated}},
                                           {c.cache_dtype, {ir::Symbol::kPages, c.page_size, c.width()}},
                                           {c.dtype, {c.heads, c.key, c.latent}},
                                           {c.dtype, {c.heads, c.value, c.latent}},
                                           {c.dtype, {ir::Symbol::kTokens, c.heads * c.value}}}};
    const Result<const KernelDef*> kernel = kernel_under_test(kLatentAttentionCpu);
    Result<std::unique_ptr<OpPlan>> plan = (*kernel)->planner->make(
        test_device(),
        {.nodes = {&planned, 1}, .kernel = (*kernel)->name, .num_pages = kNumPages, .limits = context.limits}, step_);
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    plan_ = *std::move(plan);
    context.plans.push_back({.op = "latent_attention", .group = 0, .plan = plan_.get()});
    stream_ = *test_device().create_stream("plan");
    EXPECT_TRUE(step_.allocate(test_device(), *stream_).ok());
    EXPECT_TRUE(stream_->synchronize().ok());
  }
  void plan(const ForwardBatch& batch, std::int64_t padded_requests = 0) {
    const Status status = plan_->plan(batch, context.batch_kind, padded_requests, *stream_);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(step_.upload(*stream_).ok());
    EXPECT_TRUE(stream_->synchronize().ok());
  }

  ForwardContext context;

 private:
  ir::Node node_;
  StepBuffer step_;
  std::unique_ptr<OpPlan> plan_;
  std::unique_ptr<Stream> stream_;
};

inline constexpr std::size_t kOut = 5;

inline std::int64_t real_rows(const ForwardBatch& batch) {
  return std::accumulate(batch.query_lens.begin(), batch.query_lens.end(), std::int64_t{0});
}

// Makes q, table, cache, keys, values and out. Slots that no request owns are NaN, and so are padded rows of q and the
// elements after the heads in each row of q. Keys and values do not depend on the seed.
inline std::vector<HostTensor> make_latent_operands(const LatentConfig& c, const ForwardBatch& batch, std::int64_t rows,
                                                    std::uint32_t seed) {
  HostTensor cache = make_operands(c.attention(), batch, rows, seed)[1];
  cache.dims = {kNumPages, c.page_size, c.width()};
  HostTensor q = random_tensor(c.dtype, {rows, c.q_columns()}, seed + 7, -2, 2);
  for (std::int64_t t = 0; t < rows; ++t)
    for (std::int64_t i = t < real_rows(batch) ? c.q_columns() - c.more_q : 0; i < c.q_columns(); ++i)
      q.set(t * c.q_columns() + i, std::nan(""));
  HostTensor table = random_tensor(ir::DType::kFloat32, {rows, c.rotated}, seed + 8, 0, 6);
  for (std::int64_t t = 0; t < rows; ++t)
    for (std::int64_t i = 0; i < c.rotated / 2; ++i) {
      const double angle = table.at(t * c.rotated + i);
      table.set(t * c.rotated + i, std::cos(angle));
      table.set(t * c.rotated + c.rotated / 2 + i, std::sin(angle));
    }
  const double size = 1 / std::sqrt(static_cast<double>(c.key));
  return {q,
          table,
          cache,
          random_tensor(c.dtype, {c.heads, c.key, c.latent}, 31, -size, size),
          random_tensor(c.dtype, {c.heads, c.value, c.latent}, 32, -0.1, 0.1),
          poisoned_tensor(c.dtype, {rows, c.heads * c.value})};
}

// Returns the queries of the absorbed form, [rows, heads · width].
inline HostTensor reference_queries(const LatentConfig& c, const std::vector<HostTensor>& operands) {
  const HostTensor& q = operands[0];
  const HostTensor& table = operands[1];
  const std::vector<double> keys = operands[3].values();
  HostTensor query = poisoned_tensor(c.dtype, {q.dims[0], c.heads * c.width()});
  const std::int64_t half = c.rotated / 2;
  for (std::int64_t i = 0; i < q.dims[0] * c.heads; ++i) {
    const std::int64_t t = i / c.heads;
    const std::int64_t from = t * c.q_columns() + i % c.heads * (c.key + c.rotated);
    std::vector<double> sums(static_cast<std::size_t>(c.latent));
    for (std::int64_t k = 0; k < c.key; ++k)
      add_scaled(q.at(from + k), keys.data() + (i % c.heads * c.key + k) * c.latent, sums.data(), c.latent);
    for (std::int64_t j = 0; j < c.latent; ++j) query.set(i * c.width() + j, sums[static_cast<std::size_t>(j)]);
    for (std::int64_t r = 0; r < half; ++r) {
      const std::int64_t first = c.interleaved ? 2 * r : r;
      const std::int64_t second = c.interleaved ? 2 * r + 1 : r + half;
      const double a = q.at(from + c.key + first);
      const double b = q.at(from + c.key + second);
      const double cosine = table.at(t * c.rotated + r);
      const double sine = table.at(t * c.rotated + half + r);
      query.set(i * c.width() + c.latent + first, a * cosine - b * sine);
      query.set(i * c.width() + c.latent + second, b * cosine + a * sine);
    }
  }
  return query;
}

// Returns the expected output of the real rows: for each head, the latent part (the first columns) of the attention
// output, multiplied by the head's value up-projection.
inline std::vector<double> latent_reference(const LatentConfig& c, const ForwardBatch& batch,
                                            const std::vector<HostTensor>& operands) {
  const HostTensor query = reference_queries(c, operands);
  const std::vector<double> rows =
      reference(c.attention(), batch, {query, operands[2], operands[2], poisoned_tensor(c.dtype, query.dims)});
  const std::vector<double> matrices = operands[4].values();
  std::vector<double> out;
  for (std::int64_t i = 0; i < real_rows(batch) * c.heads; ++i)
    for (std::int64_t v = 0; v < c.value; ++v) {
      const double* matrix = matrices.data() + (i % c.heads * c.value + v) * c.latent;
      out.push_back(dot(matrix, rows.data() + i * c.width(), c.latent));
    }
  return out;
}

inline void expect_real_rows(const LatentConfig& c, const HostTensor& actual, const std::vector<double>& expected,
                             const std::string& what) {
  const std::int64_t rows = static_cast<std::int64_t>(expected.size()) / (c.heads * c.value);
  // 16-bit latents are rounded before they are multiplied by the value up-projection matrices, so errors are relative
  // to a head's largest element.
  if (c.dtype != ir::DType::kFloat32) return expect_rows_close(actual, expected, rows, c.value, what);
  Tolerance allowed = tolerance(c.dtype);
  allowed.absolute += 1e-5;
  expect_close(slice_rows(actual, 0, rows), expected, allowed, what);
}

}  // namespace tessera::testing
