// Catches: a causal edge off by one, values that are not the first columns of a row, heads or tokens of a tile mixed
// up, pages read out of order or past a request's length, sizes that are no multiple of a vector, writes to padded
// rows, lengths that a recorded graph contains, and rows whose bits depend on others in a deterministic forward.
#include "tessera/ops/latent_attention.h"

#include <gmock/gmock.h>

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
    node_ = make_node(kLatentAttention, 3, c.attributes());
    const PlannedNode planned{.node = &node_,
                              .operands = {{c.dtype, {ir::Symbol::kTokens, c.heads * c.width()}},
                                           {c.cache_dtype, {ir::Symbol::kPages, c.page_size, c.width()}},
                                           {c.dtype, {ir::Symbol::kTokens, c.heads * c.latent}}}};
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

// q, cache, out. Slots that no request owns are NaN, and so are padded query rows.
std::vector<HostTensor> make_latent_operands(const LatentConfig& c, const ForwardBatch& batch, std::int64_t rows,
                                             std::uint32_t seed) {
  std::vector<HostTensor> operands = make_operands(c.attention(), batch, rows, seed);
  operands[1].dims = {kNumPages, c.page_size, c.width()};
  return {operands[0], operands[1], poisoned_tensor(c.dtype, {rows, c.heads * c.latent})};
}

// The first columns of each head of attention's output; padded rows keep their old content.
std::vector<double> latent_reference(const LatentConfig& c, const ForwardBatch& batch,
                                     const std::vector<HostTensor>& operands) {
  const HostTensor whole_rows = poisoned_tensor(c.dtype, operands[0].dims);
  const std::vector<double> rows = reference(c.attention(), batch, {operands[0], operands[1], operands[1], whole_rows});
  std::vector<double> out;
  for (std::size_t i = 0; i < rows.size(); i += static_cast<std::size_t>(c.width()))
    out.insert(out.end(), rows.begin() + static_cast<std::ptrdiff_t>(i),
               rows.begin() + static_cast<std::ptrdiff_t>(i) + c.latent);
  return out;
}

void check(const LatentConfig& c, const std::vector<Request>& requests, const std::string& what) {
  LatentBench bench(c);
  const ForwardBatch batch = make_batch(requests, c.page_size, 5);
  bench.plan(batch);
  const std::vector<HostTensor> operands = make_latent_operands(c, batch, count_rows(requests) + c.padded_rows, 6);
  const OpOutcome outcome = run_op(kLatentAttention, kLatentAttentionCpu, operands, c.attributes(), bench.context);
  const std::vector<double> expected = latent_reference(c, batch, operands);
  if (on_cuda() && c.dtype != DType::kFloat32 && c.latent == 512 && c.rotated == 64)  // on tensor cores
    return expect_rows_close(outcome.operands[2], expected, count_rows(requests), c.latent, what);
  Tolerance allowed = tolerance(c.dtype);
  allowed.absolute += 1e-5;
  expect_close(outcome.operands[2], expected, allowed, what);
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

// A captured graph holds addresses and bucket sizes only: later replays have other lengths, pages and requests.
TEST(LatentAttentionReplay, ServesOtherLengths) {
  const LatentConfig c{.heads = 16};
  LatentBench bench(c);
  constexpr std::int64_t kRows = 128;
  const ForwardBatch recorded = make_batch({{3, 3}}, c.page_size, 1);
  bench.plan(recorded);
  const std::vector<HostTensor> first = make_latent_operands(c, recorded, kRows, 2);
  const Result<const KernelDef*> kernel = kernel_under_test(kLatentAttentionCpu);
  const std::unique_ptr<OpCase> graph =
      *OpCase::create(test_device(), kLatentAttention, **kernel, first, c.attributes(), bench.context);
  ASSERT_TRUE(graph->load(first).ok());
  ASSERT_TRUE(graph->record().ok());
  const std::vector<std::vector<Request>> batches = {
      {{1, 1}}, {{60, 500}, {1, 9}}, {{1, 70}, {1, 4}, {30, 31}}, std::vector<Request>(40, {3, 20})};
  std::uint32_t seed = 3;
  for (const std::vector<Request>& requests : batches) {
    const ForwardBatch batch = make_batch(requests, c.page_size, seed);
    const std::vector<HostTensor> operands = make_latent_operands(c, batch, kRows, seed++);
    bench.plan(batch);
    ASSERT_TRUE(graph->load(operands).ok());
    ASSERT_TRUE(graph->replay().ok());
    expect_close((*graph->operands())[2], latent_reference(c, batch, operands), {1e-5, 2e-6}, "replayed");
  }
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
  return slice_rows(out.operands[2], first, first + end - begin);
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
  const ir::Type cache{DType::kBFloat16, {ir::Symbol::kPages, 16, 48}};
  const ir::Attributes attributes{{"group", std::int64_t{0}}, {"scale", 0.5}};
  EXPECT_EQ(infer_error(kLatentAttention, {x(4 * 48), cache, x(4 * 32)}, attributes), "");
  EXPECT_THAT(infer_error(kLatentAttention, {x(100), cache, x(128)}, attributes), HasSubstr("100 values, no multiple"));
  EXPECT_THAT(infer_error(kLatentAttention, {x(192), cache, x(130)}, attributes), HasSubstr("130 values"));
  EXPECT_THAT(infer_error(kLatentAttention, {x(192), cache, x(4 * 49)}, attributes), HasSubstr("196 values"));
  const ir::Type heads{DType::kBFloat16, {ir::Symbol::kPages, 16, 1, 48}};
  EXPECT_THAT(infer_error(kLatentAttention, {x(192), heads, x(128)}, attributes), HasSubstr("bf16[P, 16, 1, 48]"));
  const ir::Type other_out{DType::kFloat32, {ir::Symbol::kTokens, 128}};
  EXPECT_THAT(infer_error(kLatentAttention, {x(192), cache, other_out}, attributes), HasSubstr("f32[T, 128]"));
  EXPECT_THAT(infer_error(kLatentAttention, {x(192), cache, x(128)}, {{"group", std::int64_t{-1}}, {"scale", 0.5}}),
              HasSubstr("group is -1"));
  EXPECT_THAT(infer_error(kLatentAttention, {x(192), cache, x(128)}, {{"group", std::int64_t{0}}, {"scale", 0.0}}),
              HasSubstr("scale = 0"));
}

}  // namespace
}  // namespace tessera::testing
