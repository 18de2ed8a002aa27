// Catches: a causal edge off by one, values that are not the first columns of a row, heads or tokens of a tile mixed
// up, pages read out of order or past a request's length, sizes that are no multiple of a vector, requests of one form
// that are computed in the other's memory or by both, lengths that a recorded graph contains, and rows whose bits
// depend on others in a deterministic forward.
#include "tessera/ops/latent_attention.h"

#include <gmock/gmock.h>

#include <cmath>
#include <numeric>
#include <tuple>

#include "tessera/ops/attention_test_util.h"
#include "tessera/ops/row_test_util.h"

namespace tessera::testing {
namespace {

using ir::DType;
using ::testing::HasSubstr;

struct LatentConfig {
  DType dtype = DType::kFloat32;
  DType cache_dtype = DType::kFloat32;
  std::int64_t heads = 4;
  std::int64_t latent = 32;
  std::int64_t rotated = 16;
  std::int64_t key = 24;    // made from a latent
  std::int64_t value = 16;  // of a head of the output
  std::int64_t page_size = 16;
  double scale = 0.1;
  std::int64_t padded_rows = 3;

  std::int64_t width() const { return latent + rotated; }
  ir::Attributes attributes() const { return {{"group", std::int64_t{0}}, {"scale", scale}}; }
  // Attention whose one KV head has the cache's rows as keys and values.
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

// The device under test with a plan of the operator.
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
                              .operands = {{c.dtype, {ir::Symbol::kTokens, c.heads * c.width()}},
                                           {c.cache_dtype, {ir::Symbol::kPages, c.page_size, c.width()}},
                                           {c.dtype, {ir::Symbol::kTokens, c.heads * (c.key + c.rotated)}},
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

constexpr std::size_t kOut = 5;

// query, cache, q, keys, values, out. Slots that no request owns are NaN, and so are padded query rows. A query is made
// from q, so that both forms give the same. The matrices are the same for every seed.
std::vector<HostTensor> make_latent_operands(const LatentConfig& c, const ForwardBatch& batch, std::int64_t rows,
                                             std::uint32_t seed) {
  std::vector<HostTensor> operands = make_operands(c.attention(), batch, rows, seed);
  HostTensor query = operands[0];
  HostTensor cache = operands[1];
  cache.dims = {kNumPages, c.page_size, c.width()};
  HostTensor q = random_tensor(c.dtype, {rows, c.heads * (c.key + c.rotated)}, seed + 7, -2, 2);
  const double size = 1 / std::sqrt(static_cast<double>(c.key));
  const HostTensor keys = random_tensor(c.dtype, {c.heads, c.key, c.latent}, 31, -size, size);
  const HostTensor values = random_tensor(c.dtype, {c.heads, c.value, c.latent}, 32, -0.1, 0.1);
  const std::vector<double> matrices = keys.values();
  const std::int64_t real = std::accumulate(batch.query_lens.begin(), batch.query_lens.end(), std::int64_t{0});
  for (std::int64_t i = 0; i < rows * c.heads; ++i) {
    std::vector<double> sums(static_cast<std::size_t>(c.latent), i < real * c.heads ? 0.0 : std::nan(""));
    for (std::int64_t k = 0; k < c.key; ++k) {
      const double x = q.at(i * (c.key + c.rotated) + k);
      const double* row = matrices.data() + (i % c.heads * c.key + k) * c.latent;
      for (std::int64_t j = 0; j < c.latent; ++j) sums[static_cast<std::size_t>(j)] += x * row[j];
    }
    for (std::int64_t j = 0; j < c.latent; ++j) query.set(i * c.width() + j, sums[static_cast<std::size_t>(j)]);
    // What is rotated is read from query alone.
    for (std::int64_t k = 0; k < c.rotated; ++k) q.set(i * (c.key + c.rotated) + c.key + k, std::nan(""));
  }
  return {query, cache, q, keys, values, poisoned_tensor(c.dtype, {rows, c.heads * c.value})};
}

// Of the real rows: the first columns of each head of attention's output, multiplied with the values' matrix.
std::vector<double> latent_reference(const LatentConfig& c, const ForwardBatch& batch,
                                     const std::vector<HostTensor>& operands) {
  const HostTensor whole_rows = poisoned_tensor(c.dtype, operands[0].dims);
  const std::vector<double> rows = reference(c.attention(), batch, {operands[0], operands[1], operands[1], whole_rows});
  const std::vector<double> matrices = operands[4].values();
  const std::int64_t real = std::accumulate(batch.query_lens.begin(), batch.query_lens.end(), std::int64_t{0});
  std::vector<double> out;
  for (std::int64_t i = 0; i < real * c.heads; ++i)
    for (std::int64_t v = 0; v < c.value; ++v) {
      const double* matrix = matrices.data() + (i % c.heads * c.value + v) * c.latent;
      out.push_back(std::inner_product(matrix, matrix + c.latent, rows.data() + i * c.width(), 0.0));
    }
  return out;
}

void expect_real_rows(const LatentConfig& c, const HostTensor& actual, const std::vector<double>& expected,
                      const std::string& what) {
  const std::int64_t rows = static_cast<std::int64_t>(expected.size()) / (c.heads * c.value);
  // Latents are rounded before they meet the matrices of values.
  if (c.dtype != DType::kFloat32) return expect_rows_close(actual, expected, rows, c.value, what);
  Tolerance allowed = tolerance(c.dtype);
  allowed.absolute += 1e-5;
  expect_close(slice_rows(actual, 0, rows), expected, allowed, what);
}

void check(const LatentConfig& c, const std::vector<Request>& requests, const std::string& what) {
  LatentBench bench(c);
  const ForwardBatch batch = make_batch(requests, c.page_size, 5);
  bench.plan(batch);
  const std::vector<HostTensor> operands = make_latent_operands(c, batch, count_rows(requests) + c.padded_rows, 6);
  const OpOutcome outcome = run_op(kLatentAttention, kLatentAttentionCpu, operands, c.attributes(), bench.context);
  expect_real_rows(c, outcome.operands[kOut], latent_reference(c, batch, operands), what);
}

class LatentAttention : public ::testing::TestWithParam<DType> {};

TEST_P(LatentAttention, AnySize) {
  for (const auto& [latent, rotated] : {std::pair{32, 16}, {1, 2}, {20, 6}, {512, 64}, {33, 8}, {64, 0}})
    check({.dtype = GetParam(), .cache_dtype = GetParam(), .latent = latent, .rotated = rotated, .scale = 0.05}, kMixed,
          "latent " + std::to_string(latent) + " rotated " + std::to_string(rotated));
}

TEST_P(LatentAttention, AnyNumberOfHeads) {
  for (const std::int64_t heads : {1, 2, 7, 16, 20, 40, 128})
    check({.dtype = GetParam(), .cache_dtype = GetParam(), .heads = heads}, kMixed, "heads " + std::to_string(heads));
}

TEST_P(LatentAttention, PageSizes) {
  for (const std::int64_t page_size : {1, 3, 64})
    check({.dtype = GetParam(), .cache_dtype = GetParam(), .page_size = page_size}, kMixed,
          "page size " + std::to_string(page_size));
}

INSTANTIATE_TEST_SUITE_P(Types, LatentAttention, ::testing::Values(DType::kFloat32, DType::kBFloat16, DType::kFloat16),
                         [](const auto& test) { return std::string(ir::dtype_name(test.param)); });

TEST(LatentAttentionBatches, EmptyOneAndMany) {
  check({}, {}, "no request");
  check({}, {{1, 1}}, "one token");
  check({.padded_rows = 0}, {{257, 257}}, "one prompt, no padding");
  check({.heads = 16}, {{1, 4000}}, "one long decode");
  check({}, std::vector<Request>(40, {1, 37}), "decode of 40");
}

TEST(LatentAttentionBatches, CacheOfAnotherType) {
  check({.dtype = DType::kFloat32, .cache_dtype = DType::kBFloat16}, kMixed, "f32 over a bf16 cache");
  check({.dtype = DType::kBFloat16, .cache_dtype = DType::kFloat16}, kMixed, "bf16 over an f16 cache");
}

// The published sizes, at which a GPU takes the direct form where requests have many rows: beside others of few rows,
// after cached tokens, at the border of both, and where there is no room for all keys (the last ones).
TEST_P(LatentAttention, RequestsOfManyRows) {
  LatentConfig c{.dtype = GetParam(), .cache_dtype = GetParam(), .heads = 3, .latent = 512, .rotated = 64};
  c.key = c.value = 128;
  c.scale = 0.05;
  for (const std::vector<Request>& requests :
       std::vector<std::vector<Request>>{{{128, 128}},
                                         {{127, 127}, {129, 129}},
                                         {{1, 77}, {200, 500}, {5, 9}, {130, 131}, {2, 2}},
                                         {{150, 1000}},
                                         {{160, 600}, {140, 700}, {1, 3}}})
    check(
        c, requests,
        std::to_string(requests.size()) + " requests, the first of " + std::to_string(requests[0].query_len) + " rows");
}

// The published sizes in steps of one row a request, with values that divide among blocks and others.
TEST_P(LatentAttention, DecodesOfThePublishedSizes) {
  for (const auto& [heads, value, rows] :
       {std::tuple{3, 40, 5}, {16, 128, 1}, {16, 128, 6}, {16, 128, 20}, {128, 128, 1}}) {
    LatentConfig c{.dtype = GetParam(), .cache_dtype = GetParam(), .heads = heads, .latent = 512, .rotated = 64};
    c.value = value;
    c.scale = 0.05;
    c.padded_rows = 1;
    std::vector<Request> requests;
    for (int r = 0; r < rows; ++r) requests.push_back({1, 1 + 41 * r});
    check(c, requests, "heads " + std::to_string(heads) + ", rows " + std::to_string(rows));
  }
}

// A captured graph holds addresses and bucket sizes only: later replays have other lengths, pages and requests.
void serve_other_lengths(const LatentConfig& c, std::int64_t rows, const std::vector<std::vector<Request>>& batches) {
  LatentBench bench(c);
  const ForwardBatch recorded = make_batch({{3, 3}}, c.page_size, 1);
  bench.plan(recorded);
  const std::vector<HostTensor> first = make_latent_operands(c, recorded, rows, 2);
  const Result<const KernelDef*> kernel = kernel_under_test(kLatentAttentionCpu);
  const std::unique_ptr<OpCase> graph =
      *OpCase::create(test_device(), kLatentAttention, **kernel, first, c.attributes(), bench.context);
  ASSERT_TRUE(graph->load(first).ok());
  ASSERT_TRUE(graph->record().ok());
  std::uint32_t seed = 3;
  for (const std::vector<Request>& requests : batches) {
    const ForwardBatch batch = make_batch(requests, c.page_size, seed);
    const std::vector<HostTensor> operands = make_latent_operands(c, batch, rows, seed++);
    bench.plan(batch);
    ASSERT_TRUE(graph->load(operands).ok());
    ASSERT_TRUE(graph->replay().ok());
    expect_real_rows(c, (*graph->operands())[kOut], latent_reference(c, batch, operands), "replayed");
  }
}

TEST(LatentAttentionReplay, ServesOtherLengths) {
  serve_other_lengths({.heads = 16}, 128,
                      {{{1, 1}}, {{60, 500}, {1, 9}}, {{1, 70}, {1, 4}, {30, 31}}, std::vector<Request>(40, {3, 20})});
}

TEST(LatentAttentionReplay, ServesBothForms) {
  LatentConfig c{.dtype = DType::kBFloat16, .cache_dtype = DType::kBFloat16, .latent = 512, .rotated = 64};
  c.key = c.value = 128;
  c.scale = 0.05;
  serve_other_lengths(c, 300, {{{1, 1}}, {{300, 300}}, {{100, 500}, {1, 9}}, {{1, 70}, {200, 270}, {30, 31}}});
}

// One request's queries and rows at every position.
struct History {
  HostTensor q;
  HostTensor rows;
};

void put_rows(HostTensor& to, std::int64_t row, const HostTensor& rows) {
  const auto at = static_cast<std::ptrdiff_t>(row) * static_cast<std::ptrdiff_t>(row_bytes(to));
  std::copy(rows.bytes.begin(), rows.bytes.end(), to.bytes.begin() + at);
}

// The request's rows of the output for the positions [begin, end), beside `others`.
HostTensor attend(const LatentConfig& c, const History& history, std::int64_t begin, std::int64_t end,
                  const std::vector<Request>& others, BatchKind kind, std::uint32_t seed) {
  std::vector<Request> requests = others;
  requests.push_back({static_cast<std::int32_t>(end - begin), static_cast<std::int32_t>(end)});
  const ForwardBatch batch = make_batch(requests, c.page_size, seed);
  std::vector<HostTensor> operands = make_latent_operands(c, batch, count_rows(requests), seed);
  operands[2] = poisoned_tensor(c.dtype, operands[2].dims);  // of the direct form alone
  const std::int64_t first = count_rows(others);
  put_rows(operands[0], first, slice_rows(history.q, begin, end));
  HostTensor slots = operands[1];
  slots.dims = {kNumPages * c.page_size, c.width()};
  for (std::int64_t p = 0; p < end; ++p)
    put_rows(slots, slot_of(c.attention(), batch, others.size(), p), slice_rows(history.rows, p, p + 1));
  operands[1].bytes = std::move(slots.bytes);
  LatentBench bench(c, true, kind);
  bench.plan(batch, kind == BatchKind::kDecode ? count_rows(requests) : 0);
  const OpOutcome out = run_op(kLatentAttention, kLatentAttentionCpu, operands, c.attributes(), bench.context);
  return slice_rows(out.operands[kOut], first, first + end - begin);
}

TEST_P(LatentAttention, RowsOfADeterministicForwardDependOnTheirRequestAlone) {
  for (const std::int64_t heads : {4, 16}) {
    const LatentConfig c{.dtype = GetParam(), .cache_dtype = GetParam(), .heads = heads};
    constexpr std::int64_t kLength = 205;
    const History history{random_tensor(c.dtype, {kLength, c.heads * c.width()}, 11, -2, 2),
                          random_tensor(c.cache_dtype, {kLength, c.width()}, 12, -2, 2)};
    const HostTensor whole = attend(c, history, 0, kLength, {}, BatchKind::kExtend, 1);
    const struct {
      std::int64_t begin, end;
      std::vector<Request> others;
      BatchKind kind;
    } cases[] = {{0, kLength, {{1, 130}, {33, 40}}, BatchKind::kExtend},
                 {0, 7, {}, BatchKind::kExtend},
                 {63, 127, {{9, 70}, {40, 200}}, BatchKind::kExtend},
                 {100, 101, {}, BatchKind::kExtend},
                 {204, 205, {}, BatchKind::kDecode},
                 {64, 65, std::vector<Request>(18, {1, 90}), BatchKind::kDecode}};
    std::uint32_t seed = 2;
    for (const auto& [begin, end, others, kind] : cases)
      EXPECT_EQ(attend(c, history, begin, end, others, kind, seed++).bytes, slice_rows(whole, begin, end).bytes)
          << "positions " << begin << " … " << end - 1 << " beside " << others.size() << " requests, " << heads
          << " heads";
  }
}

TEST(LatentAttentionShapes, RefusesWhatDoesNotFit) {
  const auto x = [](std::int64_t cols) { return ir::Type{DType::kBFloat16, {ir::Symbol::kTokens, cols}}; };
  const auto w = [](std::int64_t heads, std::int64_t rows, std::int64_t cols) {
    return ir::Type{DType::kBFloat16, {heads, rows, cols}};
  };
  const ir::Type cache{DType::kBFloat16, {ir::Symbol::kPages, 16, 48}};
  const ir::Attributes attributes{{"group", std::int64_t{0}}, {"scale", 0.5}};
  // Four heads of 48 = 32 + 16, keys of 24, values of 20.
  const std::vector<ir::Type> good = {x(192), cache, x(160), w(4, 24, 32), w(4, 20, 32), x(80)};
  EXPECT_EQ(infer_error(kLatentAttention, good, attributes), "");
  const auto with = [&](std::size_t operand, const ir::Type& type) {
    std::vector<ir::Type> types = good;
    types[operand] = type;
    return infer_error(kLatentAttention, types, attributes);
  };
  EXPECT_THAT(with(0, x(100)), HasSubstr("bf16[T, 100]"));
  EXPECT_THAT(with(1, {DType::kBFloat16, {ir::Symbol::kPages, 16, 1, 48}}), HasSubstr("bf16[P, 16, 1, 48]"));
  EXPECT_THAT(with(1, {DType::kBFloat16, {ir::Symbol::kPages, 16, 24}}), HasSubstr("32 columns"));
  EXPECT_THAT(with(2, x(192)), HasSubstr("bf16[T, 192]"));
  EXPECT_THAT(with(3, w(3, 24, 32)), HasSubstr("bf16[3, 24, 32]"));
  EXPECT_THAT(with(3, w(4, 24, 16)), HasSubstr("bf16[4, 24, 16]"));
  EXPECT_THAT(with(3, w(4, 0, 32)), HasSubstr("numbers above 0"));
  EXPECT_THAT(with(4, {DType::kFloat32, {4, 20, 32}}), HasSubstr("f32[4, 20, 32]"));
  EXPECT_THAT(with(5, x(128)), HasSubstr("bf16[T, 128]"));
  EXPECT_THAT(with(5, {DType::kFloat32, {ir::Symbol::kTokens, 80}}), HasSubstr("f32[T, 80]"));
  EXPECT_THAT(infer_error(kLatentAttention, good, {{"group", std::int64_t{-1}}, {"scale", 0.5}}),
              HasSubstr("group is -1"));
  EXPECT_THAT(infer_error(kLatentAttention, good, {{"group", std::int64_t{0}}, {"scale", 0.0}}),
              HasSubstr("scale = 0"));
}

}  // namespace
}  // namespace tessera::testing
