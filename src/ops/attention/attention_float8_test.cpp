// Tests attention over a cache of f8e4m3 on each kernel that the device has. Catches: scales that are left out, applied
// twice or swapped; numbers that are widened inexactly; lanes that use another lane's elements; reads of slots that no
// request owns.
#include <gmock/gmock.h>

#include <cmath>
#include <cstdlib>

#include "tessera/ops/attention/attention_library_test_util.h"

namespace tessera::testing {
namespace {

using ir::DType;
using ::testing::HasSubstr;

Config float8_config(DType dtype, std::int64_t head_dim, std::int64_t kv_heads, std::int64_t group) {
  Config c = library_config(dtype, head_dim, kv_heads, group);
  c.cache_dtype = DType::kFloat8E4M3;
  return c;
}

class AttentionFloat8 : public ::testing::TestWithParam<DType> {};

TEST_P(AttentionFloat8, ExtendMatchesTheReference) {
  for (const std::int64_t head_dim : {20, 64, 128, 256, 512})
    check_extend(float8_config(GetParam(), head_dim, 2, 4), kMixed);
  check_extend(float8_config(GetParam(), 128, 2, 12), {{200, 200}, {1, 40}, {129, 300}});
  Config c = float8_config(GetParam(), 128, 2, 2);
  c.window = 100;
  c.softcap = 3.0;
  check_extend(c, kRagged);
  c.head_dim = 256;
  check_extend(c, kRagged);
  c = float8_config(GetParam(), 64, 2, 8);
  c.sinks = true;
  check_extend(c, kRagged);
}

// Windows and sinks, odd groups, whose last heads share a cluster between two tiles, and tiles whose keys are cut.
TEST_P(AttentionFloat8, ExtendMatchesTheReferenceForTilesOfEveryKind) {
  for (const std::int64_t head_dim : {64, 128})
    for (const std::int64_t group : {1, 3, 8})
      for (const std::int64_t window : {0, 1, 100}) {
        Config c = float8_config(GetParam(), head_dim, 2, group);
        c.window = window;
        c.sinks = group == 3;
        check_extend(c, kRagged);
      }
  for (const std::int64_t page_size : {32, 64}) {
    Config c = float8_config(GetParam(), 128, 2, 2);
    c.page_size = page_size;
    check_extend(c, kRagged);
  }
  for (const std::int64_t head_dim : {64, 128}) {
    check_extend(float8_config(GetParam(), head_dim, 2, 4), {{16, 4000}});
    check_extend(float8_config(GetParam(), head_dim, 2, 5), {{16, 4000}, {300, 3500}});
  }
}

// There are more tiles than blocks that run at once, so a block processes several tiles. A tile has only a few rows.
TEST_P(AttentionFloat8, ExtendMatchesTheReferenceWithManyRequests) {
  std::vector<Request> requests;
  for (std::int32_t i = 0; i < 40; ++i) requests.push_back({2 + i % 7, 2 + i % 7 + (i % 3 == 0 ? 20 * i % 290 : 0)});
  for (const std::int64_t head_dim : {64, 128}) check_extend(float8_config(GetParam(), head_dim, 2, 4), requests);
}

TEST_P(AttentionFloat8, DecodeMatchesTheReferenceForHeadAndGroupSizes) {
  for (const std::int64_t head_dim : {20, 64, 128, 256, 512})
    for (const std::int64_t group : {1, 4, 8, 12})
      check_decode(float8_config(GetParam(), head_dim, 2, group), 4, {{2000}, {17, 129, 1000}});
}

TEST_P(AttentionFloat8, DecodeMatchesTheReferenceForEveryPageSize) {
  for (const std::int64_t page_size : {8, 32, 64}) {
    Config c = float8_config(GetParam(), 128, 2, 2);
    c.page_size = page_size;
    check_decode(c, 4, {{300, 7, 1}, {2000}});
  }
}

TEST_P(AttentionFloat8, DecodeMatchesTheReferenceWithManyRequests) {
  std::vector<std::int32_t> kv_lens(40);
  for (std::size_t b = 0; b < kv_lens.size(); ++b) kv_lens[b] = static_cast<std::int32_t>(1 + b * 5);
  check_decode(float8_config(GetParam(), 64, 64, 1), 40, {kv_lens, {130, 4}});
  check_decode(float8_config(GetParam(), 128, 2, 4), 40, {kv_lens, {130, 4}});
}

// A kernel may narrow queries of bfloat16 to float16, whose exponents are fewer.
TEST_P(AttentionFloat8, DecodeMatchesTheReferenceForLargeAndSmallQueries) {
  for (const int exponent : {-60, -8, 12, 60}) {
    if (GetParam() == DType::kFloat16 && std::abs(exponent) > 12) continue;
    Config c = float8_config(GetParam(), 128, 2, 4);
    c.q_max = std::ldexp(2.0, exponent);
    c.scale = std::ldexp(c.scale, -exponent);
    check_decode(c, 4, {{300, 7, 1}, {2000}});
  }
}

TEST_P(AttentionFloat8, DecodeMatchesTheReferenceWithWindowsSoftcapAndSinks) {
  for (const std::int64_t head_dim : {64, 128, 256})
    for (const std::int64_t window : {0, 1, 100})
      for (const bool sinks : {false, true}) {
        Config c = float8_config(GetParam(), head_dim, 2, 4);
        c.window = window;
        c.softcap = sinks ? 0.0 : 3.0;
        c.sinks = sinks;
        check_decode(c, 4, {{300, 7, 1}, {2000}});
      }
}

INSTANTIATE_TEST_SUITE_P(Types, AttentionFloat8, ::testing::Values(DType::kFloat32, DType::kBFloat16, DType::kFloat16),
                         [](const auto& test) { return std::string(ir::dtype_name(test.param)); });

// With float32 queries the only error is that of float32 sums, so even a slightly wrong scale is found.
TEST(AttentionFloat8Exactness, Float32QueriesMatchTheReferenceClosely) {
  for (const double k_scale : {1.0, 0.013}) {
    Config c = float8_config(DType::kFloat32, 64, 2, 2);
    c.k_scale = k_scale;
    c.v_scale = 3.5;
    Bench bench = Bench::create(c.page_size);
    const ForwardBatch batch = make_batch(kMixed, c.page_size, 5);
    bench.plan(with_unseen_pages_freed(c, batch));
    const std::vector<HostTensor> operands = make_operands(c, batch, count_rows(kMixed) + c.padded_rows, 6);
    const OpOutcome outcome = run_op(kAttention, kAttentionCpu, operands, c.attributes(), bench.context);
    expect_close(outcome.operands[3], reference(c, batch, operands), {1e-5, 2e-6}, "f32 over f8e4m3");
  }
}

// If decode over a cache of the queries' type runs on the kernel "hopper", decode over a cache of E4M3 must run on
// "hopper" too. Otherwise decode over E4M3 must run on the kernel "tessera", because FA2 and cuDNN do not read E4M3.
TEST(AttentionFloat8Kernels, DecodeTakesTheKernelOfSingleRows) {
  if (!on_cuda()) GTEST_SKIP() << "the CPU has one kernel";
  for (const std::int64_t head_dim : {64, 128, 256, 512}) {
    const Config wide = library_config(DType::kBFloat16, head_dim, 2, 4);
    const Config narrow = float8_config(DType::kBFloat16, head_dim, 2, 4);
    const std::string of_wide = Bench::create(16, {{wide}}, BatchKind::kDecode).kernel(wide);
    const std::string of_narrow = Bench::create(16, {{narrow}}, BatchKind::kDecode).kernel(narrow);
    EXPECT_EQ(of_narrow, of_wide == "hopper" ? "hopper" : "tessera") << head_dim;
  }
}

// If extend over a cache of the queries' type runs on the kernel "fa3", extend over a cache of E4M3 must run on "fa3"
// too with heads of 64 and 128 elements. Otherwise extend over E4M3 must run on the kernel "tessera".
TEST(AttentionFloat8Kernels, ExtendTakesFa3UpToHeadsOf128) {
  if (!on_cuda()) GTEST_SKIP() << "the CPU has one kernel";
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16})
    for (const std::int64_t head_dim : {64, 128, 256, 512}) {
      const Config wide = library_config(dtype, head_dim, 2, 4);
      const Config narrow = float8_config(dtype, head_dim, 2, 4);
      const std::string of_wide = Bench::create(16, {{wide}}, BatchKind::kExtend).kernel(wide);
      const std::string of_narrow = Bench::create(16, {{narrow}}, BatchKind::kExtend).kernel(narrow);
      EXPECT_EQ(of_narrow, of_wide == "fa3" && head_dim <= 128 ? "fa3" : "tessera") << head_dim;
    }
}

TEST(AttentionFloat8Shapes, AcceptsScalesOnlyWithAFloat8Cache) {
  const ir::Type q{DType::kBFloat16, {ir::Symbol::kTokens, 256}};
  const ir::Type cache{DType::kFloat8E4M3, {ir::Symbol::kPages, 16, 2, 32}};
  const ir::Type wide{DType::kBFloat16, {ir::Symbol::kPages, 16, 2, 32}};
  const ir::Type scale{DType::kFloat32, {1}};
  const ir::Type sinks{DType::kFloat32, {8}};
  const auto error = [](const std::vector<ir::Type>& operands) {
    return infer_error(kAttention, operands, {{"group", std::int64_t{0}}, {"scale", 1.0}});
  };
  EXPECT_EQ(error({q, cache, cache, q, scale, scale}), "");
  EXPECT_EQ(error({q, cache, cache, q, sinks, scale, scale}), "");
  EXPECT_THAT(error({q, cache, cache, q}), HasSubstr("4 operands with a cache of f8e4m3; 6 to 7 are accepted"));
  EXPECT_THAT(error({q, wide, wide, q, sinks, scale, scale}), HasSubstr("7 operands with a cache of bf16; 4 to 5"));
  EXPECT_THAT(error({q, cache, cache, q, scale, {DType::kFloat32, {2}}}), HasSubstr("v_scale is f32[2]"));
  EXPECT_THAT(error({q, cache, cache, q, {DType::kBFloat16, {1}}, scale}), HasSubstr("k_scale is bf16[1]"));
  const ir::Type integers{DType::kInt32, {ir::Symbol::kPages, 16, 2, 32}};
  EXPECT_THAT(error({q, integers, integers, q}), HasSubstr("of f32, bf16, f16, f8e4m3 or u8 (int8), not i32"));
  EXPECT_THAT(infer_error(kAttention, {{DType::kFloat8E4M3, {ir::Symbol::kTokens, 256}}, wide, wide, q}),
              HasSubstr("queries X[T, Hq*D], not f8e4m3"));
}

}  // namespace
}  // namespace tessera::testing
