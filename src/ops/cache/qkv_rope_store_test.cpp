// Tests qkv_rope_store. Catches: heads that are read from the wrong part of a row; norms with the wrong weight; rotated
// pairs whose elements have the wrong distance; elements past the rotated dimensions (Dr) that are rotated or lost;
// keys that are stored before they are rotated; wrong slots; wrong results for sizes that the fast path does not
// support.
#include "tessera/ops/cache/qkv_rope_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/ops/cache/cache_type.h"
#include "tessera/ops/rows/row_test_util.h"

namespace tessera {
namespace {

using ir::DType;
using ir::Symbol;
using ::testing::HasSubstr;
using testing::HostTensor;
using testing::infer_error;
using testing::random_tensor;
using testing::Tolerance;

struct Config {
  DType dtype = DType::kFloat32;
  DType cache_dtype = DType::kFloat32;
  std::int64_t heads = 4;
  std::int64_t kv_heads = 2;
  std::int64_t head_dim = 64;
  std::int64_t rotated = 64;
  bool norm = false;
  std::int64_t page_size = 8;

  ir::Attributes attributes() const {
    ir::Attributes list{{"heads", heads}};
    if (norm) list.insert(list.end(), {{"qk_norm", true}, {"eps", 1e-5}});
    return list;
  }
  std::string title() const {
    return "D " + std::to_string(head_dim) + ", Dr " + std::to_string(rotated) + ", heads " + std::to_string(heads) +
           "+" + std::to_string(kv_heads) + (norm ? ", norm" : "") + ", cache " +
           std::string(ir::dtype_name(cache_dtype));
  }
};

constexpr std::int64_t kSlots = 32;
constexpr float kKeyScale = 0.0625F;  // for a cache with scales
constexpr float kValueScale = 0.3F;

std::vector<HostTensor> make_operands(const Config& c, const std::vector<std::int32_t>& slots) {
  const auto tokens = static_cast<std::int64_t>(slots.size());
  const std::vector<std::int64_t> cache_dims{kSlots / c.page_size, c.page_size, c.kv_heads, c.head_dim};
  HostTensor table = testing::poisoned_tensor(DType::kFloat32, {tokens, c.rotated});
  const std::int64_t half = c.rotated / 2;
  for (std::int64_t t = 0; t < tokens; ++t)
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle =
          static_cast<double>(17 * t + 1) * std::pow(1e4, -static_cast<double>(i) / static_cast<double>(half));
      table.set(t * c.rotated + i, std::cos(angle));
      table.set(t * c.rotated + half + i, std::sin(angle));
    }
  std::vector<HostTensor> operands{random_tensor(c.dtype, {tokens, (c.heads + 2 * c.kv_heads) * c.head_dim}, 1, -2, 2),
                                   table, testing::int_tensor({tokens}, slots),
                                   testing::filled_tensor(c.cache_dtype, cache_dims, 9),
                                   testing::filled_tensor(c.cache_dtype, cache_dims, 8)};
  if (c.norm) {
    operands.push_back(random_tensor(c.dtype, {c.head_dim}, 2, 0.5, 1.5));
    operands.push_back(random_tensor(c.dtype, {c.head_dim}, 3, 0.5, 1.5));
  }
  if (has_cache_scales(c.cache_dtype))
    for (const float scale : {kKeyScale, kValueScale})
      operands.push_back(testing::filled_tensor(DType::kFloat32, {1}, static_cast<double>(scale)));
  return operands;
}

// Computes one head. The norm and the rotation are computed in double, and the result of each is rounded to the dtype.
HostTensor reference_head(const Config& c, const std::vector<HostTensor>& operands, std::int64_t token,
                          std::int64_t row_head) {
  const std::int64_t n = c.head_dim;
  const std::int64_t at = (token * (c.heads + 2 * c.kv_heads) + row_head) * n;
  HostTensor x = testing::poisoned_tensor(c.dtype, {n});
  for (std::int64_t i = 0; i < n; ++i) x.set(i, operands[0].at(at + i));
  if (row_head >= c.heads + c.kv_heads) return x;
  if (c.norm) {
    const HostTensor& w = operands[row_head < c.heads ? 5 : 6];
    double squares = 0;
    for (std::int64_t i = 0; i < n; ++i) squares += x.at(i) * x.at(i);
    const double scale = 1 / std::sqrt(squares / static_cast<double>(n) + 1e-5);
    for (std::int64_t i = 0; i < n; ++i) {
      x.set(i, x.at(i) * scale);
      x.set(i, x.at(i) * w.at(i));
    }
  }
  const std::int64_t half = c.rotated / 2;
  for (std::int64_t i = 0; i < half; ++i) {
    const double cosine = operands[1].at(token * c.rotated + i);
    const double sine = operands[1].at(token * c.rotated + half + i);
    const double a = x.at(i);
    const double b = x.at(i + half);
    x.set(i, a * cosine - b * sine);
    x.set(i + half, b * cosine + a * sine);
  }
  return x;
}

struct Reference {
  HostTensor q, k_cache, v_cache;
};

Reference reference(const Config& c, const std::vector<HostTensor>& operands) {
  const std::int64_t tokens = operands[0].dims[0];
  Reference out{testing::poisoned_tensor(c.dtype, {tokens, c.heads * c.head_dim}), operands[3], operands[4]};
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::int64_t slot = operands[2].raw<std::int32_t>(t);
    for (std::int64_t h = 0; h < c.heads + 2 * c.kv_heads; ++h) {
      const HostTensor head = reference_head(c, operands, t, h);
      HostTensor* to = &out.q;
      float scale = 1;
      std::int64_t at = (t * c.heads + h) * c.head_dim;
      if (h >= c.heads) {
        if (slot < 0 || slot >= kSlots) continue;
        const std::int64_t kv_head = h - c.heads;
        to = kv_head < c.kv_heads ? &out.k_cache : &out.v_cache;
        if (has_cache_scales(c.cache_dtype)) scale = kv_head < c.kv_heads ? kKeyScale : kValueScale;
        at = (slot * c.kv_heads + kv_head % c.kv_heads) * c.head_dim;
      }
      for (std::int64_t i = 0; i < c.head_dim; ++i) to->set(at + i, static_cast<float>(head.at(i)) / scale);
    }
  }
  return out;
}

// Returns the allowed difference. The reference and the kernel both round, and they may round a value near the midpoint
// of two representable numbers to different numbers. With a norm, this can also happen before the rotation.
Tolerance allowed(const Config& c, DType stored) {
  Tolerance t = testing::tolerance(stored, 2);
  if (c.norm) t.absolute = 5 * testing::tolerance(c.dtype).relative;
  return t;
}

void check(const Config& c, const std::vector<std::int32_t>& slots) {
  const std::vector<HostTensor> operands = make_operands(c, slots);
  const auto out = testing::run_op(kQkvRopeStore, kQkvRopeStoreCpu, operands, c.attributes());
  const Reference expected = reference(c, operands);
  testing::expect_close(out.results[0], expected.q.values(), allowed(c, c.dtype), "q: " + c.title());
  testing::expect_close(out.operands[3], expected.k_cache.values(), allowed(c, c.cache_dtype), "k: " + c.title());
  EXPECT_EQ(out.operands[4].bytes, expected.v_cache.bytes) << "v: " << c.title();
}

const std::vector<std::int32_t> kSomeSlots = {31, -1, 0, 7, 32, 1'000'000'000, 5};  // 32 is one past the last slot

class QkvRopeStore : public ::testing::TestWithParam<DType> {};

TEST_P(QkvRopeStore, MatchesTheReferenceForEveryHeadSize) {
  for (const bool norm : {false, true})
    for (const auto& [head_dim, rotated] : {std::pair<std::int64_t, std::int64_t>{64, 64},
                                            {128, 128},
                                            {256, 256},
                                            {128, 64},
                                            {256, 64},
                                            {80, 80},
                                            {80, 32},
                                            {96, 24},
                                            {576, 64},
                                            {10, 6},
                                            {2, 2}})
      check({.dtype = GetParam(), .cache_dtype = GetParam(), .head_dim = head_dim, .rotated = rotated, .norm = norm},
            kSomeSlots);
}

TEST_P(QkvRopeStore, MatchesTheReferenceForManyHeadCounts) {
  for (const auto& [heads, kv_heads] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {16, 8}, {32, 8}, {71, 1}, {3, 3}})
    check({.dtype = GetParam(), .cache_dtype = GetParam(), .heads = heads, .kv_heads = kv_heads, .norm = true},
          kSomeSlots);
}

TEST_P(QkvRopeStore, MatchesTheReferenceForOtherCacheTypesAndPages) {
  for (const DType cache : testing::kFloatingDTypes)
    for (const std::int64_t page_size : {1, 4, 32})
      for (const bool norm : {false, true})
        check({.dtype = GetParam(), .cache_dtype = cache, .norm = norm, .page_size = page_size}, kSomeSlots);
}

TEST_P(QkvRopeStore, MatchesTheReferenceForAnyNumberOfTokens) {
  check({.dtype = GetParam(), .cache_dtype = GetParam()}, {});
  check({.dtype = GetParam(), .cache_dtype = GetParam(), .norm = true}, {3});
  std::vector<std::int32_t> many(300, -1);
  for (std::int32_t i = 0; i < kSlots; ++i) many[static_cast<std::size_t>(9 * i)] = i;
  check({.dtype = GetParam(), .cache_dtype = GetParam(), .norm = true}, many);
}

TEST_P(QkvRopeStore, RowsAreIndependent) {
  std::vector<std::int32_t> slots(kSlots);
  for (std::size_t i = 0; i < slots.size(); ++i) slots[i] = static_cast<std::int32_t>(i);
  for (const std::int64_t head_dim : {64, 80}) {
    const Config c{.dtype = GetParam(), .cache_dtype = GetParam(), .head_dim = head_dim, .norm = true};
    testing::expect_rows_independent(kQkvRopeStore, kQkvRopeStoreCpu, make_operands(c, slots), {0, 1, 2},
                                     c.attributes());
  }
}

TEST_P(QkvRopeStore, Float8CachesTakeScales) {
  for (const std::int64_t head_dim : {64, 80, 128, 256})
    for (const bool norm : {false, true})
      check({.dtype = GetParam(), .cache_dtype = DType::kFloat8E4M3, .head_dim = head_dim, .rotated = 64, .norm = norm},
            kSomeSlots);
}

INSTANTIATE_TEST_SUITE_P(DTypes, QkvRopeStore, ::testing::ValuesIn(testing::kFloatingDTypes),
                         [](const auto& test) { return std::string(ir::dtype_name(test.param)); });

TEST(QkvRopeStoreShapes, RefusesWhatKernelsCannotTake) {
  const ir::Type qkv{DType::kBFloat16, {Symbol::kTokens, 512}};
  const ir::Type table{DType::kFloat32, {Symbol::kTokens, 64}};
  const ir::Type slots{DType::kInt32, {Symbol::kTokens}};
  const ir::Type cache{DType::kBFloat16, {Symbol::kPages, 16, 2, 64}};
  const ir::Type w{DType::kBFloat16, {64}};
  const ir::Attributes plain{{"heads", std::int64_t{4}}};
  const ir::Attributes norm{{"heads", std::int64_t{4}}, {"qk_norm", true}};
  const auto error = [](const std::vector<ir::Type>& operands, const ir::Attributes& attributes) {
    return infer_error(kQkvRopeStore, operands, attributes);
  };
  EXPECT_EQ(testing::infer_types(kQkvRopeStore, {qkv, table, slots, cache, cache}, plain).value()[0].to_string(),
            "bf16[T, 256]");
  EXPECT_EQ(error({qkv, table, slots, cache, cache, w, w}, norm), "");

  const ir::Type float8{DType::kFloat8E4M3, {Symbol::kPages, 16, 2, 64}};
  const ir::Type scale{DType::kFloat32, {1}};
  EXPECT_EQ(error({qkv, table, slots, float8, float8, scale, scale}, plain), "");
  EXPECT_EQ(error({qkv, table, slots, float8, float8, w, w, scale, scale}, norm), "");
  EXPECT_THAT(error({qkv, table, slots, float8, float8, w, w}, norm), HasSubstr("k_scale is bf16[64]"));
  EXPECT_THAT(error({qkv, table, slots, float8, float8}, plain), HasSubstr("7 to 9 are accepted, with 2 scales"));
  EXPECT_THAT(error({qkv, table, slots, cache, cache, scale, scale}, plain), HasSubstr("takes 5 operands, not 7"));

  EXPECT_THAT(error({qkv, table, slots, cache, cache, w, w}, plain), HasSubstr("takes 5 operands, not 7"));
  EXPECT_THAT(error({qkv, table, slots, cache, cache}, norm), HasSubstr("takes 7 operands, not 5"));
  EXPECT_THAT(error({qkv, table, slots, cache, cache, w}, norm), HasSubstr("takes 7 operands, not 6"));
  EXPECT_THAT(error({qkv, table, slots, cache, cache, w, {DType::kBFloat16, {32}}}, norm),
              HasSubstr("k_weight is bf16[32]; it must be bf16[64]"));
  EXPECT_THAT(
      error({qkv, table, slots, cache, cache, w, w}, {{"heads", std::int64_t{4}}, {"qk_norm", true}, {"eps", 0.0}}),
      HasSubstr("eps = 0"));
  EXPECT_THAT(error({qkv, table, slots, cache, cache}, {{"heads", std::int64_t{3}}}),
              HasSubstr("have 512 values; 3 query heads, 2 key heads and as many value heads of 64 are 448"));
  EXPECT_THAT(error({qkv, table, slots, cache, cache}, {{"heads", std::int64_t{0}}}), HasSubstr("heads = 0"));
  EXPECT_THAT(error({{DType::kInt32, {4, 512}}, table, slots, cache, cache}, plain), HasSubstr("f32, bf16 or f16"));
  EXPECT_THAT(error({qkv, {DType::kBFloat16, {Symbol::kTokens, 64}}, slots, cache, cache}, plain),
              HasSubstr("it must be f32[T, 64]"));
  EXPECT_THAT(error({qkv, {DType::kFloat32, {Symbol::kTokens, 63}}, slots, cache, cache}, plain),
              HasSubstr("must be even and at most the head size 64"));
  EXPECT_THAT(error({qkv, {DType::kFloat32, {Symbol::kTokens, 128}}, slots, cache, cache}, plain),
              HasSubstr("the table has 128 columns"));
  EXPECT_THAT(error({qkv, table, {DType::kInt64, {Symbol::kTokens}}, cache, cache}, plain),
              HasSubstr("slots is i64[T]; it must be i32[T]"));
  EXPECT_THAT(error({qkv, table, {DType::kInt32, {Symbol::kRows}}, cache, cache}, plain), HasSubstr("must be i32[T]"));
  EXPECT_THAT(error({qkv, table, slots, {DType::kBFloat16, {Symbol::kPages, 16, 128}}, cache}, plain),
              HasSubstr("must have 4 dimensions"));
  EXPECT_THAT(error({qkv, table, slots, cache, {DType::kFloat16, {Symbol::kPages, 16, 2, 64}}}, plain),
              HasSubstr("v_cache is f16"));
}

}  // namespace
}  // namespace tessera
