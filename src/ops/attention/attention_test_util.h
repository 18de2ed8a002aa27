// Utilities for attention's tests: ragged batches over a shuffled paged cache, a double-precision reference, and
// buffers with plans on the device under test.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "tessera/ops/attention/attention.h"
#include "tessera/ops/cache/int8_cache.h"
#include "tessera/ops/contract/op_test_util.h"
#include "tessera/ops/device_registry.h"

namespace tessera::testing {

struct Request {
  std::int32_t query_len;
  std::int32_t kv_len;
};

struct Config {
  ir::DType dtype = ir::DType::kFloat32;
  ir::DType cache_dtype = ir::DType::kFloat32;
  std::int64_t heads = 4;
  std::int64_t kv_heads = 2;
  std::int64_t head_dim = 16;
  std::int64_t page_size = 16;
  std::int64_t window = 0;
  double softcap = 0;
  double scale = 0.25;
  std::int64_t padded_rows = 3;
  std::int64_t group = 0;  // index of the cache group
  bool sinks = false;
  bool wanted_rows_only = false;
  double k_scale = 0.75;  // for a cache with scales
  double v_scale = 1.5;
  double q_max = 2;  // queries are drawn from -q_max to q_max

  ir::Attributes attributes() const {
    ir::Attributes all = {{"group", group}, {"scale", scale}, {"window", window}, {"softcap", softcap}};
    if (wanted_rows_only) all.emplace_back(kWantedRowsOnly, true);
    return all;
  }
  Int8Layout int8_layout() const { return {.page_size = page_size, .kv_heads = kv_heads, .head_dim = head_dim}; }
  AttentionShape shape() const {
    return {dtype, cache_dtype, heads, kv_heads, head_dim, window, softcap, sinks, wanted_rows_only};
  }
};

inline constexpr std::int64_t kNumPages = 600;
inline constexpr std::int64_t kMaxRequests = 40;
inline constexpr std::int64_t kMaxPages = 520;
inline constexpr std::int64_t kMaxTokens = 1024;

// Makes a batch. The pages are shuffled, so that consecutive pages of a request are usually not adjacent in memory.
// Each cache group has its own order of pages.
inline ForwardBatch make_batch(const std::vector<Request>& requests, std::int64_t page_size, std::uint32_t seed,
                               std::size_t groups = 1) {
  ForwardBatch batch;
  for (const Request& request : requests) {
    batch.query_lens.push_back(request.query_len);
    batch.kv_lens.push_back(request.kv_len);
  }
  for (std::size_t g = 0; g < groups; ++g) {
    std::vector<std::int32_t> free_pages(static_cast<std::size_t>(kNumPages));
    std::iota(free_pages.begin(), free_pages.end(), 0);
    std::shuffle(free_pages.begin(), free_pages.end(), std::mt19937(seed + static_cast<std::uint32_t>(100 * g)));
    std::vector<std::vector<PageId>> tables;
    for (const Request& request : requests) {
      std::vector<PageId>& pages = tables.emplace_back();
      for (std::int64_t filled = 0; filled < request.kv_len; filled += page_size) {
        pages.emplace_back(free_pages.back());
        free_pages.pop_back();
      }
    }
    batch.groups.emplace_back().own(std::move(tables));
  }
  return batch;
}

// Returns a copy of the batch in which every page that no row sees is replaced by a page that no request owns. The
// elements of this page are NaN. The engine likewise frees pages that have left the window.
inline ForwardBatch with_unseen_pages_freed(const Config& c, ForwardBatch batch) {
  for (CacheGroupBatch& group : batch.groups) {
    std::vector<bool> owned(static_cast<std::size_t>(kNumPages), false);
    std::vector<std::vector<PageId>> tables = *group.owned;
    for (const std::vector<PageId>& pages : tables)
      for (const PageId page : pages) owned[page.index()] = true;
    const auto free_page = std::find(owned.begin(), owned.end(), false) - owned.begin();
    for (std::size_t b = 0; b < tables.size(); ++b) {
      const std::int64_t seen = first_page_seen(batch.kv_lens[b] - batch.query_lens[b], c.window, c.page_size);
      std::fill_n(tables[b].begin(), seen, PageId(static_cast<std::int32_t>(free_page)));
    }
    group.own(std::move(tables));
  }
  return batch;
}

inline std::int64_t count_rows(const std::vector<Request>& requests) {
  std::int64_t rows = 0;
  for (const Request& request : requests) rows += request.query_len;
  return rows;
}

inline std::int64_t slot_of(const Config& c, const ForwardBatch& batch, std::size_t request, std::int64_t position) {
  const auto& tables = batch.groups[static_cast<std::size_t>(c.group)].page_tables;
  const PageId page = tables[request].pages[static_cast<std::size_t>(position / c.page_size)];
  return page.value() * c.page_size + position % c.page_size;
}

// Stores a token's keys or values, for all heads, in a slot of a cache.
inline void store_token(const Config& c, HostTensor& cache, std::int64_t slot, const std::vector<float>& elements) {
  if (is_int8_cache(c.cache_dtype)) {
    store_int8(elements.data(), reinterpret_cast<Int8Cache*>(cache.bytes.data()), c.int8_layout(), slot, 0, c.kv_heads);
    return;
  }
  const auto count = static_cast<std::int64_t>(elements.size());
  cache.write(slot * count, count, [&](std::int64_t i) { return elements[static_cast<std::size_t>(i)]; });
}

// Returns element `i` of the token in a slot of a cache of int8, where `i` counts the elements of all heads.
inline double int8_element(const Config& c, const HostTensor& cache, std::int64_t slot, std::int64_t i) {
  const Int8Layout layout = c.int8_layout();
  const std::int64_t page = slot / c.page_size;
  const std::int64_t token = slot % c.page_size;
  const std::int64_t head = i / c.head_dim;
  const std::int64_t d = i % c.head_dim;
  BFloat16 scale;
  std::memcpy(&scale, cache.bytes.data() + layout.scales(page, head, token) + d / kInt8Block * kInt8ScaleBytes,
              sizeof(scale));
  return cache.raw<std::int8_t>(layout.codes(page, head, token) + d) * static_cast<double>(to_float(scale));
}

// Makes q, k_cache, v_cache and out, and the sinks and scales that the config asks for. Slots that no request owns are
// NaN, and so are padded query rows.
inline std::vector<HostTensor> make_operands(const Config& c, const ForwardBatch& batch, std::int64_t bucket_rows,
                                             std::uint32_t seed) {
  HostTensor q = random_tensor(c.dtype, {bucket_rows, c.heads * c.head_dim}, seed, -c.q_max, c.q_max);
  std::int64_t rows = 0;
  for (const std::int32_t n : batch.query_lens) rows += n;
  for (std::int64_t i = rows * c.heads * c.head_dim; i < q.size(); ++i) q.set(i, std::nan(""));
  const std::vector<std::int64_t> cache_dims = {kNumPages, c.page_size, c.kv_heads,
                                                cache_columns(c.cache_dtype, c.head_dim)};
  HostTensor k_cache = poisoned_tensor(c.cache_dtype, cache_dims);
  HostTensor v_cache = k_cache;
  std::mt19937 generator(seed + 1);
  std::uniform_real_distribution<double> uniform(-2, 2);
  std::vector<float> keys(static_cast<std::size_t>(c.kv_heads * c.head_dim));
  std::vector<float> values(keys.size());
  for (std::size_t b = 0; b < batch.kv_lens.size(); ++b)
    for (std::int64_t p = 0; p < batch.kv_lens[b]; ++p) {
      for (std::size_t i = 0; i < keys.size(); ++i) {
        keys[i] = static_cast<float>(uniform(generator));
        values[i] = static_cast<float>(uniform(generator));
      }
      store_token(c, k_cache, slot_of(c, batch, b, p), keys);
      store_token(c, v_cache, slot_of(c, batch, b, p), values);
    }
  std::vector<HostTensor> operands;
  operands.push_back(std::move(q));
  operands.push_back(std::move(k_cache));
  operands.push_back(std::move(v_cache));
  operands.push_back(poisoned_tensor(c.dtype, operands[0].dims));
  // Sinks have the magnitude of the scores, and are the same for every batch.
  if (c.sinks) operands.push_back(random_tensor(ir::DType::kFloat32, {c.heads}, 17, -3, 6));
  if (!has_cache_scales(c.cache_dtype)) return operands;
  operands.push_back(filled_tensor(ir::DType::kFloat32, {1}, c.k_scale));
  operands.push_back(filled_tensor(ir::DType::kFloat32, {1}, c.v_scale));
  return operands;
}

// Returns a request's keys or values in order of position: [kv_len, kv_heads, head_dim]. Multiplies them by `scale` if
// the cache has scales.
inline std::vector<double> gather(const Config& c, const ForwardBatch& batch, const HostTensor& cache, std::size_t b,
                                  double scale) {
  if (!has_cache_scales(c.cache_dtype)) scale = 1;
  const std::int64_t token = c.kv_heads * c.head_dim;
  std::vector<double> out(static_cast<std::size_t>(batch.kv_lens[b] * token));
  for (std::int64_t p = 0; p < batch.kv_lens[b]; ++p) {
    const std::int64_t slot = slot_of(c, batch, b, p);
    double* row = out.data() + p * token;
    if (!is_int8_cache(c.cache_dtype)) {
      cache.read(slot * token, token, row);
    } else {
      for (std::int64_t i = 0; i < token; ++i) row[i] = int8_element(c, cache, slot, i);
    }
    for (std::int64_t i = 0; i < token; ++i) row[i] *= scale;
  }
  return out;
}

// Computes the output of one query head of one row, out[head_dim]. `keys` and `values` start at the query head's KV
// head. `sink` is -inf if there is no sink.
inline void reference_row(const Config& c, std::int64_t position, double sink, const double* q, const double* keys,
                          const double* values, double* out) {
  const std::int64_t first = c.window > 0 ? std::max<std::int64_t>(0, position - c.window + 1) : 0;
  const std::int64_t stride = c.kv_heads * c.head_dim;
  std::vector<double> scores;
  for (std::int64_t p = first; p <= position; ++p) {
    const double s = c.scale * dot(q, keys + p * stride, c.head_dim);
    scores.push_back(c.softcap > 0 ? c.softcap * std::tanh(s / c.softcap) : s);
  }
  const double greatest = std::max(sink, *std::max_element(scores.begin(), scores.end()));
  double total = std::exp(sink - greatest);
  for (double& s : scores) total += s = std::exp(s - greatest);
  std::fill(out, out + c.head_dim, 0.0);
  for (std::int64_t p = first; p <= position; ++p)
    add_scaled(scores[static_cast<std::size_t>(p - first)] / total, values + p * stride, out, c.head_dim);
}

// Returns the expected output. Padded rows keep their old content.
inline std::vector<double> reference(const Config& c, const ForwardBatch& batch,
                                     const std::vector<HostTensor>& operands) {
  const std::vector<double> q = operands[0].values();
  std::vector<double> out = operands[3].values();
  const auto sink = [&](std::int64_t head) { return c.sinks ? operands[4].at(head) : -INFINITY; };
  std::int64_t row = 0;
  for (std::size_t b = 0; b < batch.kv_lens.size(); row += batch.query_lens[b++]) {
    const std::vector<double> keys = gather(c, batch, operands[1], b, c.k_scale);
    const std::vector<double> values = gather(c, batch, operands[2], b, c.v_scale);
    const std::int64_t heads = batch.query_lens[b] * c.heads;
#pragma omp parallel for schedule(dynamic, 8)
    for (std::int64_t i = 0; i < heads; ++i) {
      const std::int64_t at = (row * c.heads + i) * c.head_dim;
      const std::int64_t kv_head = i % c.heads / (c.heads / c.kv_heads);
      reference_row(c, batch.kv_lens[b] - batch.query_lens[b] + i / c.heads, sink(i % c.heads), q.data() + at,
                    keys.data() + kv_head * c.head_dim, values.data() + kv_head * c.head_dim, out.data() + at);
    }
  }
  return out;
}

// The tolerance of tensor-core kernels. It is relative to the largest element of a row's head and not to each element,
// because these kernels round weights and partial sums to the storage type.
inline constexpr double kLibraryTolerance = 2e-2;

// Compares the first `rows` rows, head by head.
inline void expect_rows_close(const HostTensor& actual, const std::vector<double>& expected, std::int64_t rows,
                              std::int64_t head_dim, const std::string& what) {
  double worst = 0;
  std::int64_t worst_at = 0;
  for (std::int64_t at = 0; at < rows * actual.dims[1]; at += head_dim) {
    double magnitude = 1e-3;
    double difference = 0;
    for (std::int64_t i = at; i < at + head_dim; ++i) {
      const double e = expected[static_cast<std::size_t>(i)];
      magnitude = std::max(magnitude, std::abs(e));
      const double d = std::abs(actual.at(i) - e);
      difference = std::isnan(d) ? std::numeric_limits<double>::infinity() : std::max(difference, d);
    }
    if (difference / magnitude <= worst) continue;
    worst = difference / magnitude;
    worst_at = at;
  }
  EXPECT_LE(worst, kLibraryTolerance) << what << ": row " << worst_at / actual.dims[1] << ", head "
                                      << worst_at % actual.dims[1] / head_dim;
  std::printf("  %-56s %-4s greatest difference of a row %.3g\n", what.c_str(),
              std::string(ir::dtype_name(actual.dtype)).c_str(), worst);
}

// The layers of one cache group, and the arguments of a plan for them on the device under test.
struct PlannedLayers {
  explicit PlannedLayers(const std::vector<Config>& configs) {
    for (const Config& c : configs) {
      ir::Node& node = nodes.emplace_back(ir::Node{.op = "attention"});
      node.attributes = c.attributes();
      const ir::Type q{c.dtype, {ir::Symbol::kTokens, c.heads * c.head_dim}};
      const ir::Type cache{c.cache_dtype,
                           {ir::Symbol::kPages, c.page_size, c.kv_heads, cache_columns(c.cache_dtype, c.head_dim)}};
      planned.push_back({.node = nullptr, .operands = {q, cache, cache, q}});
      if (c.sinks) planned.back().operands.push_back({ir::DType::kFloat32, {c.heads}});
      const std::size_t scales = has_cache_scales(c.cache_dtype) ? 2 : 0;
      planned.back().operands.insert(planned.back().operands.end(), scales, {ir::DType::kFloat32, {1}});
    }
    for (std::size_t i = 0; i < nodes.size(); ++i) planned[i].node = &nodes[i];
  }
  Result<std::unique_ptr<OpPlan>> make(const PlanLimits& limits, std::int64_t num_pages, StepBuffer& step,
                                       std::int64_t group = 0) const {
    const KernelDef& kernel = on_cuda() ? *TRY(TRY(test_devices().kernels("cuda"))->get("attention")) : kAttentionCpu;
    return kernel.planner->make(
        test_device(),
        {.nodes = planned, .kernel = kernel.name, .group = group, .num_pages = num_pages, .limits = limits}, step);
  }

  std::vector<ir::Node> nodes;
  std::vector<PlannedNode> planned;
};

// The device under test, a plan for each cache group, and a context that passes the plans to operators.
struct Bench {
  // Makes the device's plans. `layers` are the layers of each group. If a group has no layers, a GPU runs our own
  // kernel. `kernel` and `deterministic` mean the same as in PlanLimits.
  static Bench create(std::int64_t page_size, const std::vector<std::vector<Config>>& layers = {{}},
                      BatchKind kind = BatchKind::kExtend, const std::string& kernel = "", bool deterministic = false) {
    Bench bench;
    bench.context.limits = {.max_requests = kMaxRequests,
                            .max_tokens = kMaxTokens,
                            .max_pages_per_request = kMaxPages,
                            .page_size = page_size,
                            .deterministic = deterministic,
                            .attention_kernel = kernel};
    bench.context.batch_kind = kind;
    for (std::size_t g = 0; g < layers.size(); ++g) {
      const auto group = static_cast<std::int64_t>(g);
      Result<std::unique_ptr<OpPlan>> plan =
          PlannedLayers(layers[g]).make(bench.context.limits, kNumPages, *bench.step, group);
      EXPECT_TRUE(plan.ok()) << plan.status().message();
      bench.plans.push_back(*std::move(plan));
      bench.context.plans.push_back({.op = "attention", .group = group, .plan = bench.plans.back().get()});
    }
    Result<std::unique_ptr<Stream>> stream = test_device().create_stream("plan");
    EXPECT_TRUE(stream.ok()) << stream.status().message();
    bench.stream = *std::move(stream);
    EXPECT_TRUE(bench.step->allocate(test_device(), *bench.stream).ok());
    EXPECT_TRUE(bench.stream->synchronize().ok());
    return bench;
  }
  void plan(const ForwardBatch& batch, std::int64_t padded_requests = 0) {
    for (const std::unique_ptr<OpPlan>& each : plans) {
      const Status status = each->plan(batch, context.batch_kind, padded_requests, *stream);
      EXPECT_TRUE(status.ok()) << status.message();
    }
    EXPECT_TRUE(step->upload(*stream).ok());
    EXPECT_TRUE(stream->synchronize().ok());  // operators run on another stream
  }
  // Returns `count` integers of a group's metadata from device memory.
  std::vector<std::int32_t> read(const std::int32_t* device, std::size_t count) {
    std::vector<std::int32_t> out(count);
    const DeviceAddress from{reinterpret_cast<std::byte*>(const_cast<std::int32_t*>(device))};
    EXPECT_TRUE(stream->download(out.data(), from, count * sizeof(std::int32_t)).ok());
    EXPECT_TRUE(stream->synchronize().ok());
    return out;
  }
  const AttentionPlan& attention(std::size_t group = 0) const {
    return static_cast<const AttentionPlan&>(*plans[group]);
  }
  // Returns the kernel that a layer runs on, or "" without a planner.
  std::string kernel(const Config& c) const {
    const AttentionPlanner* planner = attention(static_cast<std::size_t>(c.group)).planner();
    return planner == nullptr ? "" : std::string(planner->kernel(c.shape(), context.batch_kind));
  }

  std::unique_ptr<StepBuffer> step = std::make_unique<StepBuffer>();
  std::vector<std::unique_ptr<OpPlan>> plans;
  std::unique_ptr<Stream> stream;
  ForwardContext context;
};

inline const std::vector<Request> kMixed = {{1, 1}, {5, 5}, {1, 130}, {70, 90}, {1, 64}, {33, 200}, {2, 65}};

}  // namespace tessera::testing
