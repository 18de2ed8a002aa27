// Tests attention and its plan. Catches: a causal or window limit that is off by one; a query head that reads another
// group's keys; pages that are read out of order or past a request's length; softmax that overflows or loses an earlier
// block of keys; wrong results for head sizes that are not a multiple of the vector length; reads of keys before the
// window; writes to padded rows; recorded graphs that depend on lengths; plans that do not fit in their buffers.
#include "tessera/ops/attention/attention.h"

#include <gmock/gmock.h>

#include "tessera/ops/attention/attention_test_util.h"

namespace tessera::testing {
namespace {

using ir::DType;
using ::testing::HasSubstr;

Tolerance attention_tolerance(DType dtype) {
  Tolerance allowed = tolerance(dtype);
  allowed.absolute += 4e-6;
  return allowed;
}

void check(const Config& c, const std::vector<Request>& requests, const std::string& what, double slack = 0) {
  Bench bench = Bench::create(c.page_size);
  const ForwardBatch batch = make_batch(requests, c.page_size, 5);
  bench.plan(with_unseen_pages_freed(c, batch));
  const std::vector<HostTensor> operands = make_operands(c, batch, count_rows(requests) + c.padded_rows, 6);
  const OpOutcome outcome = run_op(kAttention, kAttentionCpu, operands, c.attributes(), bench.context);
  Tolerance allowed = attention_tolerance(c.dtype);
  allowed.absolute += slack;
  expect_close(outcome.operands[3], reference(c, batch, operands), allowed, what);
}

class Attention : public ::testing::TestWithParam<DType> {};

TEST_P(Attention, MatchesTheReferenceForAnyHeadSize) {
  for (const std::int64_t head_dim : {1, 8, 16, 20, 64, 80, 128, 256})
    check({.dtype = GetParam(),
           .cache_dtype = GetParam(),
           .head_dim = head_dim,
           .scale = 1 / std::sqrt(static_cast<double>(head_dim))},
          kMixed, "head size " + std::to_string(head_dim));
}

TEST_P(Attention, MatchesTheReferenceForAnyGroupSize) {
  for (const std::int64_t group : {1, 2, 3, 4, 5, 6, 7, 8, 71})
    check({.dtype = GetParam(), .cache_dtype = GetParam(), .heads = 2 * group, .head_dim = 20}, kMixed,
          "query heads per KV head " + std::to_string(group));
}

TEST_P(Attention, MatchesTheReferenceWithWindowsAndSoftcap) {
  for (const std::int64_t window : {1, 2, 16, 63, 64, 65, 100, 1000})
    for (const double softcap : {0.0, 3.0})
      check({.dtype = GetParam(), .cache_dtype = GetParam(), .window = window, .softcap = softcap}, kMixed,
            "window " + std::to_string(window) + " softcap " + std::to_string(softcap));
}

// Each query head has its own sink. A sink counts once, even if there are several blocks of keys. Neither windows nor
// softcaps apply to it.
TEST_P(Attention, MatchesTheReferenceWithSinks) {
  for (const std::int64_t window : {0, 1, 24, 65})
    for (const double softcap : {0.0, 3.0})
      check({.dtype = GetParam(),
             .cache_dtype = GetParam(),
             .heads = 6,
             .window = window,
             .softcap = softcap,
             .sinks = true},
            kMixed, "sinks, window " + std::to_string(window) + " softcap " + std::to_string(softcap));
  // On a GPU this test runs our own kernel (attention.cu), which computes all shapes of this test in float32. Heads of
  // 512 elements in a 16-bit type are left out, because they run on tensor cores (wide_attention.cuh).
  // attention_library_test.cpp checks those heads, with a larger tolerance.
  for (const std::int64_t head_dim : {20, 64, 128, GetParam() == DType::kFloat32 ? 512 : 256})
    check({.dtype = GetParam(),
           .cache_dtype = GetParam(),
           .head_dim = head_dim,
           .scale = 1 / std::sqrt(static_cast<double>(head_dim)),
           .sinks = true},
          kMixed, "sinks, head size " + std::to_string(head_dim));
}

TEST_P(Attention, MatchesTheReferenceForAnyPageSize) {
  for (const std::int64_t page_size : {1, 3, 16, 64})
    check({.dtype = GetParam(), .cache_dtype = GetParam(), .page_size = page_size}, kMixed,
          "page size " + std::to_string(page_size));
}

INSTANTIATE_TEST_SUITE_P(Types, Attention, ::testing::Values(DType::kFloat32, DType::kBFloat16, DType::kFloat16),
                         [](const auto& test) { return std::string(ir::dtype_name(test.param)); });

TEST(AttentionBatches, MatchTheReferenceForZeroOneAndManyRequests) {
  check({}, {}, "no request");
  check({}, {{1, 1}}, "one token");
  check({.padded_rows = 0}, {{257, 257}}, "one prompt, no padding");
  check({}, {{1, 4000}}, "one long decode");
  check({.sinks = true}, {{1, 4000}}, "one long decode with sinks");
  check({}, std::vector<Request>(40, {1, 37}), "decode of 40");
}

TEST(AttentionBatches, MatchTheReferenceWithACacheOfAnotherType) {
  check({.dtype = DType::kFloat32, .cache_dtype = DType::kBFloat16}, kMixed, "f32 over a bf16 cache");
  check({.dtype = DType::kBFloat16, .cache_dtype = DType::kFloat16}, kMixed, "bf16 over an f16 cache");
}

// Scores are in the hundreds, so their exponentials are far outside float32's range. A float32 score near 1000 has an
// absolute error of about 1e-4, which becomes a relative error of its weight. So the tolerance is larger here.
TEST(AttentionBatches, MatchTheReferenceWithLargeScores) { check({.scale = 30}, kMixed, "great scores", 2e-3); }

// A recorded graph contains only addresses and the sizes to which a forward is padded (the bucket). So later replays
// may have other lengths, pages and requests.
TEST(AttentionReplay, ServesOtherLengths) {
  const Config c{.head_dim = 64};
  Bench bench = Bench::create(c.page_size);
  constexpr std::int64_t kBucketRows = 128;
  const ForwardBatch recorded = make_batch({{3, 3}}, c.page_size, 1);
  bench.plan(recorded);
  const std::vector<HostTensor> first = make_operands(c, recorded, kBucketRows, 2);
  Result<const KernelDef*> kernel = kernel_under_test(kAttentionCpu);
  ASSERT_TRUE(kernel.ok()) << kernel.status().message();
  Result<std::unique_ptr<OpCase>> op =
      OpCase::create(test_device(), kAttention, **kernel, first, c.attributes(), bench.context);
  ASSERT_TRUE(op.ok()) << op.status().message();
  ASSERT_TRUE((*op)->record().ok());

  std::uint32_t seed = 10;
  for (const std::vector<Request>& requests :
       {kMixed, {{1, 500}}, std::vector<Request>(40, {3, 20}), {}, std::vector<Request>{{128, 128}}}) {
    ++seed;
    const ForwardBatch batch = make_batch(requests, c.page_size, seed);
    bench.plan(batch);
    const std::vector<HostTensor> operands = make_operands(c, batch, kBucketRows, seed);
    ASSERT_TRUE((*op)->load(operands).ok());
    ASSERT_TRUE((*op)->replay().ok());
    Result<std::vector<HostTensor>> after = (*op)->operands();
    ASSERT_TRUE(after.ok());
    expect_close((*after)[3], reference(c, batch, operands), attention_tolerance(c.dtype),
                 "replay with " + std::to_string(requests.size()) + " requests");
  }
}

// A request whose rows do not fit in the bucket is a defect of the runner. Even then the kernel must not write out of
// bounds.
TEST(AttentionReplay, SkipsRequestsBeyondTheBucket) {
  const Config c{};
  Bench bench = Bench::create(c.page_size);
  const ForwardBatch batch = make_batch({{2, 2}, {3, 3}}, c.page_size, 1);
  bench.plan(batch);
  const std::vector<HostTensor> operands = make_operands(c, batch, 4, 2);
  const OpOutcome outcome = run_op(kAttention, kAttentionCpu, operands, c.attributes(), bench.context);
  const HostTensor& out = outcome.operands[3];
  const std::int64_t width = c.heads * c.head_dim;
  EXPECT_FALSE(std::isnan(out.at(2 * width - 1)));
  EXPECT_TRUE(std::isnan(out.at(2 * width)));
}

TEST(AttentionPlan, WritesLengthsAndPages) {
  Bench bench = Bench::create(16);
  // Plans twice: the second plan must replace the entries of the first.
  bench.plan(make_batch({{4, 100}, {1, 7}, {1, 3}}, 16, 1));
  const ForwardBatch batch = make_batch({{1, 50}, {2, 20}}, 16, 2);
  bench.plan(batch);
  const AttentionMetadata metadata = bench.attention().metadata();
  EXPECT_THAT(bench.read(metadata.num_requests, 1), ::testing::ElementsAre(2));
  EXPECT_THAT(bench.read(metadata.query_starts, 3), ::testing::ElementsAre(0, 1, 3));
  EXPECT_THAT(bench.read(metadata.kv_lens, 2), ::testing::ElementsAre(50, 20));
  EXPECT_EQ(metadata.wanted_starts, nullptr);
  for (std::size_t b = 0; b < 2; ++b) {
    const std::span<const PageId> pages = batch.groups[0].page_tables[b].pages;
    const std::vector<std::int32_t> row =
        bench.read(metadata.page_table + b * static_cast<std::size_t>(metadata.max_pages_per_request), pages.size());
    for (std::size_t p = 0; p < pages.size(); ++p) EXPECT_EQ(row[p], pages[p].value());
  }
}

TEST(AttentionPlan, WritesWhereWantedRowsStart) {
  Bench bench = Bench::create(16, {{Config{}, Config{.wanted_rows_only = true}}});
  ForwardBatch batch = make_batch({{4, 100}, {1, 7}, {3, 3}}, 16, 1);
  batch.wanted_rows = {3, 5};
  bench.plan(batch);
  EXPECT_THAT(bench.read(bench.attention().metadata().wanted_starts, 3), ::testing::ElementsAre(3, 1, 0));
}

TEST(AttentionPlan, RefusesBatchesBeyondItsLimits) {
  Bench bench = Bench::create(16);
  const auto error = [&](const ForwardBatch& batch) {
    return bench.plans[0]->plan(batch, BatchKind::kExtend, 0, *bench.stream).to_string();
  };
  EXPECT_THAT(error(make_batch(std::vector<Request>(41, {1, 1}), 16, 1)),
              HasSubstr("resource exhausted: attention's plan: 41 requests in a forward; the plan was made for 40"));
  EXPECT_THAT(error(make_batch({{1, 1}, {1, 521 * 16}}, 16, 1)),
              HasSubstr("resource exhausted: attention's plan: request 1: 521 pages; the plan was made for 520"));
  StepBuffer step;
  const auto second = PlannedLayers({}).make(bench.context.limits, kNumPages, step, /*group=*/1);
  ASSERT_TRUE(second.ok()) << second.status().to_string();
  EXPECT_THAT((*second)->plan(make_batch({{1, 1}}, 16, 1), BatchKind::kExtend, 0, *bench.stream).to_string(),
              HasSubstr("1 cache groups, not group 1"));
  ForwardBatch batch = make_batch({{1, 33}}, 16, 1);
  batch.groups[0].own({{PageId(1), PageId(2)}});
  EXPECT_THAT(error(batch), HasSubstr("request 0: 2 pages of 16 tokens do not hold the request's 33 tokens"));
  for (const std::int32_t page : {-1, 600}) {
    batch.groups[0].own({{PageId(1), PageId(2), PageId(page)}});
    EXPECT_THAT(error(batch), HasSubstr("page " + std::to_string(page) + " is outside the cache's 600"));
  }
  batch.groups[0].page_tables.clear();
  EXPECT_THAT(error(batch), HasSubstr("0 page tables; they must be equal in number"));
  // A plan that fails does not affect the next one.
  bench.plan(make_batch(kMixed, 16, 3));
  EXPECT_THAT(bench.read(bench.attention().metadata().kv_lens + 2, 1), ::testing::ElementsAre(130));

  EXPECT_FALSE(PlannedLayers({}).make({.max_requests = 0}, kNumPages, step).ok());
}

TEST(AttentionShapes, RefusesOperandsThatDoNotFit) {
  const ir::Type q{DType::kBFloat16, {ir::Symbol::kTokens, 256}};
  const ir::Type cache{DType::kBFloat16, {ir::Symbol::kPages, 16, 2, 32}};
  const ir::Attributes good = {{"group", std::int64_t{0}}, {"scale", 1.0}};
  EXPECT_EQ(infer_error(kAttention, {q, cache, cache, q}, good), "");
  const ir::Type narrow{DType::kBFloat16, {ir::Symbol::kTokens, 32}};
  EXPECT_THAT(infer_error(kAttention, {narrow, cache, cache, narrow}, good),
              HasSubstr("must be a multiple of the cache's 2 heads of 32 elements"));
  EXPECT_THAT(infer_error(kAttention, {q, cache, cache, narrow}, good), HasSubstr("writes to bf16[T, 32]"));
  EXPECT_THAT(infer_error(kAttention, {q, q, q, q}, good), HasSubstr("not bf16[T, 256]"));
  const ir::Type other{DType::kBFloat16, {ir::Symbol::kPages, 16, 1, 32}};
  EXPECT_THAT(infer_error(kAttention, {q, cache, other, q}, good), HasSubstr("must agree"));
  const ir::Type symbolic{DType::kBFloat16, {ir::Symbol::kPages, ir::Symbol::kTokens, 2, 32}};
  EXPECT_THAT(infer_error(kAttention, {q, symbolic, symbolic, q}, good), HasSubstr("needs constant page size"));
  EXPECT_THAT(infer_error(kAttention, {q, cache, cache, q}, {{"group", std::int64_t{-1}}, {"scale", 1.0}}),
              HasSubstr("group is -1"));
  EXPECT_THAT(infer_error(kAttention, {q, cache, cache, q}, {{"window", std::int64_t{-5}}}), HasSubstr("window is -5"));
  EXPECT_THAT(infer_error(kAttention, {q, cache, cache, q}, {{"window", std::int64_t{1} << 32}}),
              HasSubstr("window is 4294967296"));
  EXPECT_THAT(infer_error(kAttention, {q, cache, cache, q}, {{"softcap", -1.0}}), HasSubstr("softcap is -1"));
  EXPECT_EQ(infer_error(kAttention, {q, cache, cache, q, {DType::kFloat32, {8}}}, good), "");
  for (const ir::Type& sinks :
       {ir::Type{DType::kFloat32, {2}}, ir::Type{DType::kBFloat16, {8}}, ir::Type{DType::kFloat32, {8, 1}}})
    EXPECT_THAT(infer_error(kAttention, {q, cache, cache, q, sinks}, good),
                HasSubstr("takes sinks f32[8], one for each query head, not " + sinks.to_string()));
}

TEST(AttentionShapes, NeedsThePlanOfItsCacheGroup) {
  const Config c{};
  Bench bench = Bench::create(c.page_size);
  const ForwardBatch batch = make_batch({{1, 1}}, c.page_size, 1);
  const std::vector<HostTensor> operands = make_operands(c, batch, 1, 2);
  const Result<OpOutcome> outcome =
      try_run_op(kAttention, kAttentionCpu, operands, {{"group", std::int64_t{1}}, {"scale", 1.0}}, bench.context);
  EXPECT_THAT(outcome.status().message(), HasSubstr("no plan of operator attention for cache group 1"));
}

}  // namespace
}  // namespace tessera::testing
