// Tests both forms of latent attention: the absorbed form attends to latents, and the direct form first makes keys and
// values from them. Catches: a causal mask that is off by one; values that are not made from the first columns of a
// cache row; mixed-up heads or tokens of a tile; pages read out of order or past a request's length; wrong results for
// sizes that are not a multiple of the vector length; a request that both forms compute, or neither; made keys that
// overlap another request's in scratch memory; recorded graphs that depend on lengths; rows whose bits depend on other
// rows in a deterministic forward.
#include "tessera/ops/latent/latent_attention.h"

#include <gmock/gmock.h>

#include <tuple>

#include "tessera/ops/latent/latent_attention_test_util.h"

namespace tessera::testing {
namespace {

using ir::DType;
using ::testing::HasSubstr;

void check_latent(const LatentConfig& c, const std::vector<Request>& requests, const std::string& what) {
  LatentBench bench(c);
  const ForwardBatch batch = make_batch(requests, c.page_size, 5);
  bench.plan(batch);
  const std::vector<HostTensor> operands = make_latent_operands(c, batch, count_rows(requests) + c.padded_rows, 6);
  const OpOutcome outcome = run_op(kLatentAttention, kLatentAttentionCpu, operands, c.attributes(), bench.context);
  expect_real_rows(c, outcome.operands[kOut], latent_reference(c, batch, operands), what);
}

class LatentAttention : public ::testing::TestWithParam<DType> {};

TEST_P(LatentAttention, MatchesTheReferenceForAnySize) {
  for (const auto& [latent, rotated, key, value] : {std::tuple{32, 16, 24, 16},
                                                    {1, 2, 1, 1},
                                                    {20, 6, 33, 70},
                                                    {512, 64, 192, 256},
                                                    {33, 8, 20, 24},
                                                    {64, 2, 8, 40}})
    for (const bool interleaved : {false, true})
      check_latent({.dtype = GetParam(),
                    .cache_dtype = GetParam(),
                    .latent = latent,
                    .rotated = rotated,
                    .key = key,
                    .value = value,
                    .scale = 0.05,
                    .interleaved = interleaved,
                    .more_q = latent % 7},
                   kMixed, "latent " + std::to_string(latent) + " rotated " + std::to_string(rotated));
}

TEST_P(LatentAttention, MatchesTheReferenceForAnyNumberOfHeads) {
  for (const std::int64_t heads : {1, 2, 7, 16, 20, 40, 128})
    check_latent({.dtype = GetParam(), .cache_dtype = GetParam(), .heads = heads}, kMixed,
                 "heads " + std::to_string(heads));
}

TEST_P(LatentAttention, MatchesTheReferenceForAnyPageSize) {
  for (const std::int64_t page_size : {1, 3, 64})
    check_latent({.dtype = GetParam(), .cache_dtype = GetParam(), .page_size = page_size}, kMixed,
                 "page size " + std::to_string(page_size));
}

INSTANTIATE_TEST_SUITE_P(Types, LatentAttention, ::testing::Values(DType::kFloat32, DType::kBFloat16, DType::kFloat16),
                         [](const auto& test) { return std::string(ir::dtype_name(test.param)); });

TEST(LatentAttentionBatches, MatchTheReferenceForZeroOneAndManyRequests) {
  check_latent({}, {}, "no request");
  check_latent({}, {{1, 1}}, "one token");
  check_latent({.padded_rows = 0}, {{257, 257}}, "one prompt, no padding");
  check_latent({.heads = 16}, {{1, 4000}}, "one long decode");
  check_latent({}, std::vector<Request>(40, {1, 37}), "decode of 40");
}

TEST(LatentAttentionBatches, MatchTheReferenceWithACacheOfAnotherType) {
  check_latent({.dtype = DType::kFloat32, .cache_dtype = DType::kBFloat16}, kMixed, "f32 over a bf16 cache");
  check_latent({.dtype = DType::kBFloat16, .cache_dtype = DType::kFloat16}, kMixed, "bf16 over an f16 cache");
}

// At the published sizes a GPU uses the direct form for requests of many rows. Some requests have just too few rows for
// the direct form, and others have just enough. Some batches also have requests of few rows, and some requests have
// cached tokens. In the last two test cases the requests have more keys than the scratch memory holds.
TEST_P(LatentAttention, MatchesTheReferenceForRequestsOfManyRows) {
  LatentConfig c{.dtype = GetParam(), .cache_dtype = GetParam(), .heads = 3, .latent = 512, .rotated = 64};
  c.key = c.value = 128;
  c.scale = 0.05;
  c.interleaved = GetParam() == DType::kBFloat16;
  for (const std::vector<Request>& requests :
       std::vector<std::vector<Request>>{{{128, 128}},
                                         {{127, 127}, {129, 129}},
                                         {{1, 77}, {200, 500}, {5, 9}, {130, 131}, {2, 2}},
                                         {{150, 1000}},
                                         {{160, 600}, {140, 700}, {1, 3}}})
    check_latent(
        c, requests,
        std::to_string(requests.size()) + " requests, the first of " + std::to_string(requests[0].query_len) + " rows");
}

// Runs decode steps at the published sizes. Some value sizes divide evenly among blocks, and some do not.
TEST_P(LatentAttention, MatchesTheReferenceForDecodesOfPublishedSizes) {
  for (const auto& [heads, value, rows] :
       {std::tuple{3, 40, 5}, {16, 128, 1}, {16, 128, 6}, {16, 128, 20}, {128, 128, 1}}) {
    LatentConfig c{.dtype = GetParam(), .cache_dtype = GetParam(), .heads = heads, .latent = 512, .rotated = 64};
    c.value = value;
    c.scale = 0.05;
    c.padded_rows = 1;
    std::vector<Request> requests;
    for (int r = 0; r < rows; ++r) requests.push_back({1, 1 + 41 * r});
    check_latent(c, requests, "heads " + std::to_string(heads) + ", rows " + std::to_string(rows));
  }
}

// Captures one graph and replays it for every batch. A captured graph holds only addresses and bucket sizes, so replays
// may have other lengths, pages and requests.
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

// One request's queries, angles and cache rows at every position.
struct History {
  HostTensor q;
  HostTensor table;
  HostTensor rows;
};

void put_rows(HostTensor& to, std::int64_t row, const HostTensor& rows) {
  const auto at = static_cast<std::ptrdiff_t>(row) * static_cast<std::ptrdiff_t>(row_bytes(to));
  std::copy(rows.bytes.begin(), rows.bytes.end(), to.bytes.begin() + at);
}

// Returns the request's output rows for the positions [begin, end), computed in one batch with `others`.
HostTensor attend(const LatentConfig& c, const History& history, std::int64_t begin, std::int64_t end,
                  const std::vector<Request>& others, BatchKind kind, std::uint32_t seed) {
  std::vector<Request> requests = others;
  requests.push_back({static_cast<std::int32_t>(end - begin), static_cast<std::int32_t>(end)});
  const ForwardBatch batch = make_batch(requests, c.page_size, seed);
  std::vector<HostTensor> operands = make_latent_operands(c, batch, count_rows(requests), seed);
  const std::int64_t first = count_rows(others);
  put_rows(operands[0], first, slice_rows(history.q, begin, end));
  put_rows(operands[1], first, slice_rows(history.table, begin, end));
  HostTensor slots = operands[2];
  slots.dims = {kNumPages * c.page_size, c.width()};
  for (std::int64_t p = 0; p < end; ++p)
    put_rows(slots, slot_of(c.attention(), batch, others.size(), p), slice_rows(history.rows, p, p + 1));
  operands[2].bytes = std::move(slots.bytes);
  LatentBench bench(c, true, kind);
  bench.plan(batch, kind == BatchKind::kDecode ? count_rows(requests) : 0);
  const OpOutcome out = run_op(kLatentAttention, kLatentAttentionCpu, operands, c.attributes(), bench.context);
  return slice_rows(out.operands[kOut], first, first + end - begin);
}

TEST_P(LatentAttention, DeterministicRowsDependOnTheirRequestAlone) {
  for (const std::int64_t heads : {4, 16}) {
    const LatentConfig c{.dtype = GetParam(), .cache_dtype = GetParam(), .heads = heads};
    constexpr std::int64_t kLength = 205;
    const History history{random_tensor(c.dtype, {kLength, c.q_columns()}, 11, -2, 2),
                          random_tensor(DType::kFloat32, {kLength, c.rotated}, 13, -1, 1),
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

TEST(LatentAttentionShapes, RefusesOperandsThatDoNotFit) {
  const auto x = [](std::int64_t cols) { return ir::Type{DType::kBFloat16, {ir::Symbol::kTokens, cols}}; };
  const auto w = [](std::int64_t heads, std::int64_t rows, std::int64_t cols) {
    return ir::Type{DType::kBFloat16, {heads, rows, cols}};
  };
  const ir::Type cache{DType::kBFloat16, {ir::Symbol::kPages, 16, 48}};
  const ir::Type table{DType::kFloat32, {ir::Symbol::kTokens, 16}};
  const ir::Attributes attributes{{"group", std::int64_t{0}}, {"scale", 0.5}};
  // There are four heads of 24 + 16 elements, cache rows of 32 + 16 elements, and values of 20 elements.
  const std::vector<ir::Type> good = {x(160), table, cache, w(4, 24, 32), w(4, 20, 32), x(80)};
  EXPECT_EQ(infer_error(kLatentAttention, good, attributes), "");
  const auto with = [&](std::size_t operand, const ir::Type& type) {
    std::vector<ir::Type> types = good;
    types[operand] = type;
    return infer_error(kLatentAttention, types, attributes);
  };
  EXPECT_EQ(with(0, x(200)), "") << "a joint projection";
  EXPECT_THAT(with(0, x(159)), HasSubstr("159 values"));
  EXPECT_THAT(with(1, {DType::kFloat32, {ir::Symbol::kTokens, 8}}), HasSubstr("f32[T, 8]"));
  EXPECT_THAT(with(2, {DType::kBFloat16, {ir::Symbol::kPages, 16, 1, 48}}), HasSubstr("bf16[P, 16, 1, 48]"));
  EXPECT_THAT(with(2, {DType::kBFloat16, {ir::Symbol::kPages, 16, 24}}), HasSubstr("32 columns"));
  EXPECT_THAT(with(2, {DType::kBFloat16, {ir::Symbol::kPages, 16, 47}}), HasSubstr("minus these must be even"));
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
