// Tests how int8 caches are written. Catches: codes that are further from their element than half a scale; scales of
// other blocks, tokens or heads; writes outside a token's own bytes; infinities and NaN that become plausible numbers;
// two operators that store the same key differently.
#include "tessera/ops/cache/int8_cache.h"

#include <gmock/gmock.h>

#include "tessera/ops/cache/cache_type.h"
#include "tessera/ops/cache/kv_store.h"
#include "tessera/ops/cache/qkv_rope_store.h"
#include "tessera/ops/contract/op_test_util.h"
#include "tessera/ops/rows/row_test_util.h"

namespace tessera::testing {
namespace {

using ir::DType;
using ::testing::HasSubstr;

constexpr std::int64_t kPages = 3;
constexpr std::int64_t kPageSize = 4;
constexpr std::int64_t kHeads = 2;
constexpr std::byte kUntouched{9};

HostTensor empty_cache(std::int64_t head_dim) {
  return filled_tensor(DType::kUInt8, {kPages, kPageSize, kHeads, cache_columns(DType::kUInt8, head_dim)}, 9);
}

// Returns the byte offset in a cache at which the chunk of a head begins, in the page of `slot`.
std::int64_t chunk_at(std::int64_t slot, std::int64_t head, std::int64_t head_dim) {
  const std::int64_t blocks = (head_dim + 31) / 32;
  return (slot / kPageSize * kHeads + head) * kPageSize * (head_dim + 2 * blocks);
}

double code_of(const HostTensor& cache, std::int64_t slot, std::int64_t head, std::int64_t head_dim, std::int64_t d) {
  return cache.raw<std::int8_t>(chunk_at(slot, head, head_dim) + slot % kPageSize * head_dim + d);
}

double scale_of(const HostTensor& cache, std::int64_t slot, std::int64_t head, std::int64_t head_dim, std::int64_t d) {
  const std::int64_t blocks = (head_dim + 31) / 32;
  const std::int64_t at =
      chunk_at(slot, head, head_dim) + kPageSize * head_dim + 2 * (slot % kPageSize * blocks + d / 32);
  BFloat16 scale;
  std::memcpy(&scale, cache.bytes.data() + at, sizeof(scale));
  return static_cast<double>(to_float(scale));
}

double element_of(const HostTensor& cache, std::int64_t slot, std::int64_t head, std::int64_t head_dim,
                  std::int64_t d) {
  return code_of(cache, slot, head, head_dim, d) * scale_of(cache, slot, head, head_dim, d);
}

OpOutcome store(const HostTensor& k, const HostTensor& v, const std::vector<std::int32_t>& slots,
                std::int64_t head_dim) {
  const auto tokens = static_cast<std::int64_t>(slots.size());
  return run_op(kKvStore, kKvStoreCpu,
                {k, v, int_tensor({tokens}, slots), empty_cache(head_dim), empty_cache(head_dim)});
}

class Int8CacheOnCpu : public ::testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    if (on_cuda()) GTEST_SKIP() << "caches of int8 are the CPU's";
  }
};

TEST_P(Int8CacheOnCpu, ElementsAreWithinHalfAScale) {
  for (const std::int64_t head_dim : {1, 20, 32, 64, 80, 128, 256}) {
    const std::vector<std::int32_t> slots = {11, -1, 0, 12, 5};  // -1 is padding, and 12 is past the end
    HostTensor k = random_tensor(GetParam(), {5, kHeads * head_dim}, 1, -300, 300);
    const HostTensor v = random_tensor(GetParam(), {5, kHeads * head_dim}, 2, -0.1, 0.1);
    k.set(0, 60000);  // one great element makes only its own block coarse
    const OpOutcome out = store(k, v, slots, head_dim);
    using Stored = std::pair<const HostTensor*, const HostTensor*>;
    for (const auto& [from, to] : {Stored{&k, &out.operands[3]}, Stored{&v, &out.operands[4]}})
      for (const std::int64_t t : {0, 2, 4})
        for (std::int64_t h = 0; h < kHeads; ++h)
          for (std::int64_t d = 0; d < head_dim; ++d) {
            const std::int64_t slot = slots[static_cast<std::size_t>(t)];
            double greatest = 0;
            for (std::int64_t e = d / 32 * 32; e < std::min(head_dim, d / 32 * 32 + 32); ++e)
              greatest = std::max(greatest, std::abs(from->at((t * kHeads + h) * head_dim + e)));
            const double scale = scale_of(*to, slot, h, head_dim, d);
            ASSERT_GE(scale * 127, greatest * (1 - 1e-6));
            ASSERT_LE(scale * 127, greatest * 1.0079);
            ASSERT_NEAR(element_of(*to, slot, h, head_dim, d), from->at((t * kHeads + h) * head_dim + d),
                        scale * 0.50001)
                << "head size " << head_dim << ", slot " << slot << ", head " << h << ", element " << d;
          }
  }
}

TEST_P(Int8CacheOnCpu, WritesNothingButTheTokensOwnBytes) {
  for (const std::int64_t head_dim : {20, 64}) {
    const HostTensor x = random_tensor(GetParam(), {1, kHeads * head_dim}, 1, 1, 2);
    const HostTensor cache = store(x, x, {6}, head_dim).operands[3];
    std::int64_t changed = 0;
    for (const std::byte byte : cache.bytes) changed += byte == kUntouched ? 0 : 1;
    const std::int64_t own = kHeads * cache_columns(DType::kUInt8, head_dim);
    EXPECT_LE(changed, own);
    EXPECT_GE(changed, own - kHeads * 4) << "few bytes are 9 by chance";
    for (std::int64_t slot = 0; slot < kPages * kPageSize; ++slot)
      for (std::int64_t h = 0; h < kHeads && slot != 6; ++h)
        for (std::int64_t d = 0; d < head_dim; ++d)
          ASSERT_EQ(code_of(cache, slot, h, head_dim, d), 9) << "slot " << slot;
  }
}

TEST_P(Int8CacheOnCpu, BlocksWithInfinitiesOrNanReadAsNan) {
  for (const double bad : {kInf, -kInf, std::nan("")}) {
    HostTensor x = random_tensor(GetParam(), {1, kHeads * 80}, 3);
    x.set(40, bad);  // in the second block of the first head
    const HostTensor cache = store(x, x, {2}, 80).operands[4];
    for (std::int64_t h = 0; h < kHeads; ++h)
      for (std::int64_t d = 0; d < 80; ++d)
        EXPECT_EQ(std::isnan(element_of(cache, 2, h, 80, d)), h == 0 && d / 32 == 1) << bad << " " << h << " " << d;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Int8CacheOnCpu, ::testing::ValuesIn(kFloatingDTypes),
                         [](const auto& test) { return std::string(ir::dtype_name(test.param)); });

TEST(Int8Cache, BlocksOfZerosAndOfTinyNumbersAreZeros) {
  if (on_cuda()) GTEST_SKIP() << "caches of int8 are the CPU's";
  HostTensor x = filled_tensor(DType::kFloat32, {1, kHeads * 64}, 0);
  for (std::int64_t d = 0; d < 32; ++d) x.set(64 + d, 1e-37);
  const HostTensor cache = store(x, x, {1}, 64).operands[3];
  for (std::int64_t h = 0; h < kHeads; ++h)
    for (std::int64_t d = 0; d < 64; ++d) EXPECT_EQ(element_of(cache, 1, h, 64, d), 0);
}

// qkv_rope_store writes rotated keys to a cache of the activations' type, which holds them unchanged. kv_store then
// writes these keys to an int8 cache. This cache must equal the int8 cache that qkv_rope_store writes directly.
TEST(Int8Cache, QkvRopeStoreStoresWhatKvStoreStores) {
  if (on_cuda()) GTEST_SKIP() << "caches of int8 are the CPU's";
  for (const DType dtype : kFloatingDTypes)
    for (const std::int64_t head_dim : {64, 80}) {
      const std::vector<std::int32_t> slots = {11, -1, 0, 12, 5};
      const ir::Attributes attributes{{"heads", std::int64_t{4}}};
      const HostTensor qkv = random_tensor(dtype, {5, (4 + 2 * kHeads) * head_dim}, 1, -2, 2);
      const HostTensor table = random_tensor(DType::kFloat32, {5, 64}, 2);
      const HostTensor plain = filled_tensor(dtype, {kPages, kPageSize, kHeads, head_dim}, 0);
      const HostTensor places = int_tensor({5}, slots);
      const OpOutcome turned = run_op(kQkvRopeStore, kQkvRopeStoreCpu, {qkv, table, places, plain, plain}, attributes);
      const OpOutcome out = run_op(kQkvRopeStore, kQkvRopeStoreCpu,
                                   {qkv, table, places, empty_cache(head_dim), empty_cache(head_dim)}, attributes);
      EXPECT_EQ(out.results[0].bytes, turned.results[0].bytes);
      // Each slot of the plain cache becomes one row for store(). Rows of slots without a token get the slot -1, so
      // they are not stored.
      const auto rows = [&](HostTensor cache) {
        cache.dims = {kPages * kPageSize, kHeads * head_dim};
        return cache;
      };
      const OpOutcome again = store(rows(turned.operands[3]), rows(turned.operands[4]),
                                    {0, -1, -1, -1, -1, 5, -1, -1, -1, -1, -1, 11}, head_dim);
      EXPECT_EQ(out.operands[3].bytes, again.operands[3].bytes) << ir::dtype_name(dtype) << " " << head_dim;
      EXPECT_EQ(out.operands[4].bytes, again.operands[4].bytes) << ir::dtype_name(dtype) << " " << head_dim;
    }
}

TEST(Int8Cache, ColumnsSayTheSizeOfHeads) {
  for (std::int64_t head_dim = 1; head_dim <= 600; ++head_dim)
    EXPECT_EQ(cache_head_dim(DType::kUInt8, cache_columns(DType::kUInt8, head_dim)), head_dim);
  EXPECT_EQ(cache_columns(DType::kUInt8, 128), 136);
  for (const std::int64_t columns : {0, 1, 2, 35, 36, 69}) EXPECT_EQ(cache_head_dim(DType::kUInt8, columns), 0);
  EXPECT_EQ(cache_columns(DType::kBFloat16, 128), 128);
}

TEST(Int8Cache, ShapeRulesCountTheBytesOfScales) {
  const ir::Type k{DType::kBFloat16, {ir::Symbol::kTokens, 256}};
  const ir::Type slots{DType::kInt32, {ir::Symbol::kTokens}};
  const ir::Type cache{DType::kUInt8, {ir::Symbol::kPages, 16, 2, 136}};
  const ir::Type short_cache{DType::kUInt8, {ir::Symbol::kPages, 16, 2, 128}};
  const ir::Type scale{DType::kFloat32, {1}};
  EXPECT_EQ(infer_error(kKvStore, {k, k, slots, cache, cache}), "");
  EXPECT_THAT(infer_error(kKvStore, {k, k, slots, short_cache, short_cache}), HasSubstr("do not fill a token"));
  EXPECT_THAT(infer_error(kKvStore, {k, k, slots, cache, cache, scale, scale}), HasSubstr("with a cache of u8; 5"));
}

}  // namespace
}  // namespace tessera::testing
