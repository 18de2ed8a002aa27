// Tests attention over a cache of int8, which the CPU has. Catches: scales of other blocks, keys or heads; codes that
// are widened inexactly; keys of the wrong page; reads of slots that no request owns.
#include <gmock/gmock.h>

#include "tessera/ops/attention/attention_library_test_util.h"

namespace tessera::testing {
namespace {

using ir::DType;
using ::testing::HasSubstr;

Config int8_config(DType dtype, std::int64_t head_dim, std::int64_t kv_heads, std::int64_t group) {
  Config c = library_config(dtype, head_dim, kv_heads, group);
  c.cache_dtype = DType::kUInt8;
  return c;
}

class AttentionInt8 : public ::testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    if (on_cuda()) GTEST_SKIP() << "caches of int8 are the CPU's";
  }
};

TEST_P(AttentionInt8, ExtendMatchesTheReference) {
  for (const std::int64_t head_dim : {20, 64, 80, 128, 256})
    check_extend(int8_config(GetParam(), head_dim, 2, 4), kMixed);
  check_extend(int8_config(GetParam(), 128, 2, 12), {{200, 200}, {1, 40}, {129, 300}});
  Config c = int8_config(GetParam(), 128, 2, 2);
  c.window = 100;
  c.softcap = 3.0;
  check_extend(c, kRagged);
  c = int8_config(GetParam(), 64, 2, 8);
  c.sinks = true;
  check_extend(c, kRagged);
}

TEST_P(AttentionInt8, DecodeMatchesTheReferenceForHeadAndGroupSizes) {
  for (const std::int64_t head_dim : {8, 20, 48, 64, 80, 128, 256, 512})
    for (const std::int64_t group : {1, 2, 3, 4, 7, 8, 12})
      check_decode(int8_config(GetParam(), head_dim, 2, group), 4, {{2000}, {17, 129, 1000}});
}

TEST_P(AttentionInt8, DecodeMatchesTheReferenceForEveryPageSize) {
  for (const std::int64_t page_size : {8, 32, 64}) {
    Config c = int8_config(GetParam(), 128, 2, 2);
    c.page_size = page_size;
    check_decode(c, 4, {{300, 7, 1}, {2000}});
  }
}

TEST_P(AttentionInt8, DecodeMatchesTheReferenceWithWindowsSoftcapAndSinks) {
  for (const std::int64_t head_dim : {64, 80, 128})
    for (const std::int64_t window : {0, 1, 100})
      for (const bool sinks : {false, true}) {
        Config c = int8_config(GetParam(), head_dim, 2, 4);
        c.window = window;
        c.softcap = sinks ? 0.0 : 3.0;
        c.sinks = sinks;
        check_decode(c, 4, {{300, 7, 1}, {2000}});
      }
}

INSTANTIATE_TEST_SUITE_P(Types, AttentionInt8, ::testing::Values(DType::kFloat32, DType::kBFloat16, DType::kFloat16),
                         [](const auto& test) { return std::string(ir::dtype_name(test.param)); });

// With float32 queries the only error is that of float32 sums, so even a slightly wrong scale is found.
TEST(AttentionInt8Exactness, Float32QueriesMatchTheReferenceClosely) {
  if (on_cuda()) GTEST_SKIP() << "caches of int8 are the CPU's";
  for (const std::int64_t head_dim : {20, 64, 80, 128}) {
    const Config c = int8_config(DType::kFloat32, head_dim, 2, 2);
    Bench bench = Bench::create(c.page_size);
    const ForwardBatch batch = make_batch(kMixed, c.page_size, 5);
    bench.plan(with_unseen_pages_freed(c, batch));
    const std::vector<HostTensor> operands = make_operands(c, batch, count_rows(kMixed) + c.padded_rows, 6);
    const OpOutcome outcome = run_op(kAttention, kAttentionCpu, operands, c.attributes(), bench.context);
    expect_close(outcome.operands[3], reference(c, batch, operands), {1e-5, 2e-6}, "f32 over int8");
  }
}

TEST(AttentionInt8Shapes, CountsTheBytesOfScales) {
  const ir::Type q{DType::kBFloat16, {ir::Symbol::kTokens, 256}};
  const ir::Type cache{DType::kUInt8, {ir::Symbol::kPages, 16, 2, 34}};
  const auto error = [](const std::vector<ir::Type>& operands) {
    return infer_error(kAttention, operands, {{"group", std::int64_t{0}}, {"scale", 1.0}});
  };
  EXPECT_EQ(error({q, cache, cache, q}), "");
  EXPECT_EQ(error({q, cache, cache, q, {DType::kFloat32, {8}}}), "");
  const ir::Type scale{DType::kFloat32, {1}};
  EXPECT_THAT(error({q, cache, cache, q, scale, scale}), HasSubstr("6 operands with a cache of u8; 4 to 5"));
  const ir::Type odd{DType::kUInt8, {ir::Symbol::kPages, 16, 2, 35}};
  EXPECT_THAT(error({q, odd, odd, q}), HasSubstr("heads of no size have 35 columns in int8"));
}

}  // namespace
}  // namespace tessera::testing
