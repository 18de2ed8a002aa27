// Catches: a latent that is not normalised or a key that is not rotated, pairs of the wrong order, heads that overwrite
// the other operator's columns, rows in the wrong slot, slots out of range, and padded rows that reach real ones.
#include "tessera/ops/latent_store.h"

#include <gmock/gmock.h>

#include <cmath>

#include "tessera/ops/op_test_util.h"

namespace tessera::testing {
namespace {

using ir::DType;
using ::testing::HasSubstr;

struct StoreSizes {
  DType x = DType::kFloat32;
  DType cache = DType::kFloat32;
  std::int64_t heads = 4;
  std::int64_t plain = 24;
  std::int64_t latent = 32;
  std::int64_t rotated = 8;
  bool interleaved = true;
  std::int64_t width() const { return latent + rotated; }
};

constexpr double kEps = 1e-3;
constexpr std::int64_t kSlots = 32;

// `pairs` values from x[at] on, rotated by the table's row t.
std::vector<double> turned(const StoreSizes& c, const HostTensor& x, std::int64_t at, const HostTensor& table,
                           std::int64_t t) {
  std::vector<double> y(static_cast<std::size_t>(c.rotated));
  const std::int64_t half = c.rotated / 2;
  for (std::int64_t i = 0; i < half; ++i) {
    const std::int64_t first = c.interleaved ? 2 * i : i;
    const std::int64_t second = c.interleaved ? 2 * i + 1 : i + half;
    const double cosine = table.at(t * c.rotated + i);
    const double sine = table.at(t * c.rotated + half + i);
    y[static_cast<std::size_t>(first)] = x.at(at + first) * cosine - x.at(at + second) * sine;
    y[static_cast<std::size_t>(second)] = x.at(at + second) * cosine + x.at(at + first) * sine;
  }
  return y;
}

void check(const StoreSizes& c) {
  const std::vector<std::int32_t> slots = {31, -1, 7, 0, 32, 1'000'000'000, 5};
  const auto tokens = static_cast<std::int64_t>(slots.size());
  HostTensor q = random_tensor(c.x, {tokens, c.heads * (c.plain + c.rotated)}, 1);
  HostTensor kv = random_tensor(c.x, {tokens, c.width()}, 2);
  const std::int64_t padding = 3;  // a row of NaN, as padding may be
  for (std::int64_t i = 0; i < c.width(); ++i) kv.set(padding * c.width() + i, std::nan(""));
  const HostTensor weight = random_tensor(c.x, {c.latent}, 3, 0.5, 1.5);
  const HostTensor table = random_tensor(DType::kFloat32, {tokens, c.rotated}, 4);
  const HostTensor cache = filled_tensor(c.cache, {kSlots / 4, 4, c.width()}, 9);
  const HostTensor query = filled_tensor(c.x, {tokens, c.heads * c.width()}, 5);

  const OpOutcome out =
      run_op(kLatentStore, kLatentStoreCpu, {q, kv, weight, table, int_tensor({tokens}, slots), cache, query},
             {{"eps", kEps}, {"interleaved", c.interleaved}});

  std::vector<double> expected_cache = cache.values();
  std::vector<double> expected_query = query.values();
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t h = 0; h < c.heads; ++h) {
      const std::vector<double> y = turned(c, q, (t * c.heads + h + 1) * (c.plain + c.rotated) - c.rotated, table, t);
      std::copy(y.begin(), y.end(), expected_query.begin() + (t * c.heads + h) * c.width() + c.latent);
    }
    const std::int64_t slot = slots[static_cast<std::size_t>(t)];
    if (slot < 0 || slot >= kSlots) continue;
    double squares = 0;
    for (std::int64_t i = 0; i < c.latent; ++i) squares += std::pow(kv.at(t * c.width() + i), 2);
    const double scale = 1 / std::sqrt(squares / static_cast<double>(c.latent) + kEps);
    for (std::int64_t i = 0; i < c.latent; ++i)
      expected_cache[static_cast<std::size_t>(slot * c.width() + i)] = kv.at(t * c.width() + i) * scale * weight.at(i);
    const std::vector<double> y = turned(c, kv, t * c.width() + c.latent, table, t);
    std::copy(y.begin(), y.end(), expected_cache.begin() + slot * c.width() + c.latent);
  }
  // A value is rounded to X twice (norm.h), then to the cache's type.
  const bool exact = c.x == DType::kFloat32 && c.cache == DType::kFloat32;
  const Tolerance allowed = exact ? Tolerance{1e-6, 2e-6} : Tolerance{2e-3, 1.2e-2};
  expect_close(out.operands[5], expected_cache, allowed, "cache");
  expect_close(out.operands[6], expected_query, allowed, "query");
}

TEST(LatentStore, NormalisesRotatesAndStores) {
  using enum DType;
  for (const auto& [x, cache] : {std::pair{kFloat32, kFloat32},
                                 {kBFloat16, kBFloat16},
                                 {kFloat16, kFloat16},
                                 {kFloat32, kBFloat16},
                                 {kBFloat16, kFloat32},
                                 {kFloat16, kBFloat16}})
    for (const bool interleaved : {true, false}) {
      check({.x = x, .cache = cache, .interleaved = interleaved});
      check({.x = x, .cache = cache, .heads = 1, .plain = 1, .latent = 1, .rotated = 2, .interleaved = interleaved});
      check({.x = x, .cache = cache, .heads = 3, .plain = 7, .latent = 33, .rotated = 6, .interleaved = interleaved});
      check({.x = x,
             .cache = cache,
             .heads = 16,
             .plain = 128,
             .latent = 512,
             .rotated = 64,
             .interleaved = interleaved});
    }
}

TEST(LatentStoreShapes, RefusesWhatDoesNotFit) {
  const auto x = [](std::int64_t cols) { return ir::Type{DType::kBFloat16, {ir::Symbol::kTokens, cols}}; };
  const ir::Type weight{DType::kBFloat16, {32}};
  const ir::Type table{DType::kFloat32, {ir::Symbol::kTokens, 8}};
  const ir::Type slots{DType::kInt32, {ir::Symbol::kTokens}};
  const ir::Type cache{DType::kBFloat16, {ir::Symbol::kPages, 16, 40}};
  const ir::Attributes eps{{"eps", 1e-6}};
  const auto error = [&](std::vector<ir::Type> types) { return infer_error(kLatentStore, types, eps); };
  EXPECT_EQ(error({x(128), x(40), weight, table, slots, cache, x(160)}), "");
  EXPECT_THAT(error({x(128), x(48), weight, table, slots, cache, x(160)}), HasSubstr("bf16[T, 48]"));
  EXPECT_THAT(error({x(128), x(40), weight, table, slots, cache, x(150)}), HasSubstr("150 values"));
  EXPECT_THAT(error({x(32), x(40), weight, table, slots, cache, x(160)}), HasSubstr("32 values"));
  const ir::Type odd{DType::kFloat32, {ir::Symbol::kTokens, 7}};
  EXPECT_THAT(error({x(128), x(39), weight, odd, slots, cache, x(160)}), HasSubstr("must be even"));
  const ir::Type narrow{DType::kBFloat16, {ir::Symbol::kPages, 16, 32}};
  EXPECT_THAT(error({x(128), x(40), weight, table, slots, narrow, x(160)}), HasSubstr("bf16[P, 16, 32]"));
  EXPECT_THAT(infer_error(kLatentStore, {x(128), x(40), weight, table, slots, cache, x(160)}, {{"eps", 0.0}}),
              HasSubstr("eps = 0"));
}

}  // namespace
}  // namespace tessera::testing
