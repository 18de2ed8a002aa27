// Tests kv_store. Catches: keys that are written to the wrong slot; writes outside the cache; padded rows that
// overwrite real ones; a conversion to the cache's dtype that does not round.
#include "tessera/ops/cache/kv_store.h"

#include <gmock/gmock.h>

#include "tessera/ops/contract/op_test_util.h"

namespace tessera::testing {
namespace {

using ir::DType;
using ::testing::HasSubstr;

struct StoreCase {
  DType x;
  DType cache;
  std::int64_t page_size;
  std::int64_t kv_heads;
  std::int64_t head_dim;
};

class KvStore : public ::testing::TestWithParam<StoreCase> {};

TEST_P(KvStore, WritesEachRowToItsSlotAndNothingElse) {
  const auto [x, cache, page_size, kv_heads, head_dim] = GetParam();
  const std::int64_t pages = 32 / page_size;
  const std::int64_t row = kv_heads * head_dim;
  const std::vector<std::int32_t> slots = {31, -1, 0, 7, 32, 1'000'000'000, 5};  // 32 is one past the end
  const auto num_tokens = static_cast<std::int64_t>(slots.size());
  const HostTensor k = random_tensor(x, {num_tokens, row}, 1);
  const HostTensor v = random_tensor(x, {num_tokens, row}, 2);
  const HostTensor empty = filled_tensor(cache, {pages, page_size, kv_heads, head_dim}, 9);

  const OpOutcome out = run_op(kKvStore, kKvStoreCpu, {k, v, int_tensor({num_tokens}, slots), empty, empty});

  for (const auto& [from, to] : {std::pair{&k, &out.operands[3]}, std::pair{&v, &out.operands[4]}}) {
    HostTensor expected = empty;
    for (std::int64_t t = 0; t < num_tokens; ++t) {
      const std::int64_t slot = slots[static_cast<std::size_t>(t)];
      if (slot < 0 || slot >= 32) continue;
      for (std::int64_t i = 0; i < row; ++i) expected.set(slot * row + i, from->at(t * row + i));
    }
    EXPECT_EQ(to->bytes, expected.bytes);
  }
}

// Every row holds two finite numbers that saturate, the two infinities, and a NaN.
TEST(KvStoreFloat8, DividesByTheScalesAndSaturates) {
  for (const DType x : {DType::kFloat32, DType::kBFloat16, DType::kFloat16})
    for (const std::int64_t head_dim : {20, 64, 128, 256}) {
      HostTensor k = random_tensor(x, {4, 2 * head_dim}, 1, -300, 300);
      HostTensor v = random_tensor(x, {4, 2 * head_dim}, 2, -0.1, 0.1);
      for (std::int64_t t = 0; t < 4; ++t) {
        const double special[] = {60000, -60000, kInf, -kInf, std::nan("")};
        for (std::int64_t i = 0; i < 5; ++i) {
          k.set(t * 2 * head_dim + 3 * i, special[i]);
          v.set((t + 1) * 2 * head_dim - 1 - 3 * i, special[i]);
        }
      }
      const HostTensor empty = filled_tensor(DType::kFloat8E4M3, {2, 4, 2, head_dim}, 9);
      const std::vector<std::int32_t> slots = {7, 0, -1, 8};  // -1 is padding, and 8 is past the end
      const double k_scale = 0.37;
      const double v_scale = 0.0125;
      const OpOutcome out =
          run_op(kKvStore, kKvStoreCpu,
                 {k, v, int_tensor({4}, slots), empty, empty, filled_tensor(DType::kFloat32, {1}, k_scale),
                  filled_tensor(DType::kFloat32, {1}, v_scale)});
      for (const auto& [from, to, scale] : {std::tuple{&k, &out.operands[3], static_cast<float>(k_scale)},
                                            std::tuple{&v, &out.operands[4], static_cast<float>(v_scale)}}) {
        HostTensor expected = empty;
        for (std::int64_t t = 0; t < 2; ++t)
          for (std::int64_t i = 0; i < 2 * head_dim; ++i)
            expected.set(slots[static_cast<std::size_t>(t)] * 2 * head_dim + i,
                         static_cast<float>(from->at(t * 2 * head_dim + i)) / scale);
        EXPECT_EQ(to->bytes, expected.bytes) << ir::dtype_name(x) << " head size " << head_dim;
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Types, KvStore,
                         ::testing::Values(StoreCase{DType::kFloat32, DType::kFloat32, 16, 2, 8},
                                           StoreCase{DType::kBFloat16, DType::kBFloat16, 16, 8, 128},
                                           StoreCase{DType::kFloat16, DType::kFloat16, 1, 1, 20},
                                           StoreCase{DType::kFloat32, DType::kBFloat16, 16, 3, 80},
                                           StoreCase{DType::kBFloat16, DType::kFloat32, 1, 2, 64},
                                           StoreCase{DType::kFloat32, DType::kFloat16, 4, 2, 16}));

TEST(KvStoreShapes, RefusesOperandsThatDoNotFit) {
  const ir::Type k{DType::kBFloat16, {ir::Symbol::kTokens, 64}};
  const ir::Type slots{DType::kInt32, {ir::Symbol::kTokens}};
  const ir::Type cache{DType::kBFloat16, {ir::Symbol::kPages, 16, 2, 32}};
  EXPECT_EQ(infer_error(kKvStore, {k, k, slots, cache, cache}), "");
  const ir::Type v{DType::kBFloat16, {ir::Symbol::kTokens, 32}};
  EXPECT_THAT(infer_error(kKvStore, {k, v, slots, cache, cache}), HasSubstr("bf16[T, 32]"));
  const ir::Type wide_slots{DType::kInt64, {ir::Symbol::kTokens}};
  EXPECT_THAT(infer_error(kKvStore, {k, k, wide_slots, cache, cache}), HasSubstr("i64[T]"));
  const ir::Type few_slots{DType::kInt32, {ir::Symbol::kRows}};
  EXPECT_THAT(infer_error(kKvStore, {k, k, few_slots, cache, cache}), HasSubstr("i32[R]"));
  const ir::Type other_heads{DType::kBFloat16, {ir::Symbol::kPages, 16, 4, 32}};
  EXPECT_THAT(infer_error(kKvStore, {k, k, slots, other_heads, other_heads}), HasSubstr("do not fill a token"));
  EXPECT_THAT(infer_error(kKvStore, {k, k, slots, cache, other_heads}), HasSubstr("must agree"));
  const ir::Type ints{DType::kInt32, {ir::Symbol::kPages, 16, 2, 32}};
  EXPECT_THAT(infer_error(kKvStore, {k, k, slots, ints, ints}), HasSubstr("i32[P, 16, 2, 32]"));
  const ir::Type float8{DType::kFloat8E4M3, {ir::Symbol::kPages, 16, 2, 32}};
  const ir::Type scale{DType::kFloat32, {1}};
  EXPECT_EQ(infer_error(kKvStore, {k, k, slots, float8, float8, scale, scale}), "");
  EXPECT_THAT(infer_error(kKvStore, {k, k, slots, float8, float8}), HasSubstr("5 operands with a cache of f8e4m3; 7"));
  EXPECT_THAT(infer_error(kKvStore, {k, k, slots, cache, cache, scale, scale}), HasSubstr("with a cache of bf16; 5"));
  EXPECT_THAT(infer_error(kKvStore, {k, k, slots, float8, float8, slots, scale}), HasSubstr("k_scale is i32[T]"));
}

}  // namespace
}  // namespace tessera::testing
