// Tests attention over an int8 KV cache, which only the CPU backend supports. Catches: a scale that belongs to another
// block, key or head; int8 codes that are converted inexactly; keys of the wrong page; reads of slots that no request
// owns.
#include <gmock/gmock.h>

#include "tessera/ops/attention/attention_library_test_util.h"
#include "tessera/ops/attention/int8_rows.h"

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
    expect_close(outcome.operands[3], reference(c, batch, operands), {1e-4, 2e-5}, "f32 over int8");
  }
}

// An engine on a machine with AVX-512 never runs the AVX2 kernels, although the machine could. This test therefore
// calls the kernels of both instruction sets.
TEST(AttentionInt8Kernels, EveryInstructionSetMatchesTheReference) {
  constexpr std::int64_t kHeadDim = 96;
  constexpr std::int64_t kBlocks = kHeadDim / kInt8Block;
  AttentionProblem p{};
  p.kv_heads = 1;
  p.head_dim = p.value_dim = kHeadDim;
  p.page_size = kBlockKeys + kPrefetchKeys;
  const Int8Layout layout{.page_size = p.page_size, .kv_heads = 1, .head_dim = kHeadDim};
  std::vector<Int8Cache> keys(static_cast<std::size_t>(p.page_size * int8_row_bytes(kHeadDim)));
  std::vector<Int8Cache> values(keys.size());
  std::mt19937 generator(1);
  std::uniform_real_distribution<float> uniform(-2, 2);
  std::vector<float> row(kHeadDim);
  for (std::int64_t j = 0; j < p.page_size; ++j)
    for (std::vector<Int8Cache>* cache : {&keys, &values}) {
      for (float& x : row) x = uniform(generator);
      store_int8(row.data(), cache->data(), layout, j, 0, 1);
    }
  p.k_cache = reinterpret_cast<const std::byte*>(keys.data());
  p.v_cache = reinterpret_cast<const std::byte*>(values.data());
  std::vector<float> memory(static_cast<std::size_t>(AttentionScratch::bytes(kHeadDim)) / sizeof(float));
  const AttentionScratch s(memory.data(), kHeadDim);
  const std::int32_t page = 0;
  const AttentionTile tile{.head = 0, .row_begin = 0, .row_end = 7, .query_start = 0, .offset = 0, .pages = &page};
  const auto element = [](const CacheRow<Int8Cache>& of, std::int64_t d) { return static_cast<double>(of.number(d)); };
  for (const Int8RowKernels* kernels : {int8_row_kernels_avx512(), int8_row_kernels_avx2()}) {
    if (kernels == nullptr) continue;
    for (const KeyRange present : {KeyRange{0, 64}, KeyRange{5, 42}, KeyRange{63, 64}})
      for (std::int64_t rows = 1; rows <= 7; ++rows) {
        for (std::int64_t i = 0; i < rows * kHeadDim; ++i) s.q[i] = uniform(generator), s.sums[i] = 1;
        find_rows<Int8Cache>(p, tile, s, 0, present, p.page_size);
        round_queries(p, s, rows);
        kernels->dot_keys(p, s, rows, present);
        for (std::int64_t r = 0; r < rows; ++r)
          for (std::int64_t j = present.begin; j < present.end; ++j) {
            double want = 0;
            for (std::int64_t d = 0; d < kHeadDim; ++d)
              want += static_cast<double>(s.q[r * kHeadDim + d]) * element(key_at<Int8Cache>(p, s, j), d);
            ASSERT_NEAR(s.scores[r * kBlockKeys + j], want, 2e-3) << kernels->name << " row " << r << " key " << j;
          }
        kernels->add_values(p, s, rows, present);
        for (std::int64_t r = 0; r < rows; ++r)
          for (std::int64_t d = 0; d < kHeadDim; ++d) {
            double want = 1;
            for (std::int64_t j = present.begin; j < present.end; ++j)
              want += static_cast<double>(s.scores[r * kBlockKeys + j]) * element(value_at<Int8Cache>(p, s, j), d);
            ASSERT_NEAR(s.sums[r * kHeadDim + d], want, 1e-2) << kernels->name << " row " << r << " column " << d;
          }
      }
  }
  static_assert(kBlocks == 3, "kernels of two blocks of columns have one left");
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
