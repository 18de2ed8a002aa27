// Catches: a latent that is not normalised; a key that is not rotated; pairs in the wrong order; mixed-up columns of a
// joint projection; rows in the wrong slot; writes to slots out of range; padded rows that change real ones.
#include "tessera/ops/latent/latent_store.h"

#include <gmock/gmock.h>

#include <cmath>

#include "tessera/ops/contract/op_test_util.h"

namespace tessera::testing {
namespace {

using ir::DType;
using ::testing::HasSubstr;

struct StoreSizes {
  DType x = DType::kFloat32;
  DType cache = DType::kFloat32;
  std::int64_t q_latent = 24;  // 0: no query latent
  std::int64_t between = 5;    // values of a row of x between the query latent and the latent; never read
  std::int64_t latent = 32;
  std::int64_t rotated = 8;
  bool interleaved = true;
  std::int64_t width() const { return latent + rotated; }
  std::int64_t columns() const { return q_latent + between + width(); }
};

constexpr double kEps = 1e-3;
constexpr std::int64_t kSlots = 32;

// Returns the values from x[at] on, rotated in pairs by the table's row t.
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

// Returns the rms_norm of `size` values from x[at] on.
std::vector<double> normalised(const HostTensor& x, std::int64_t at, const HostTensor& weight, std::int64_t size) {
  double squares = 0;
  for (std::int64_t i = 0; i < size; ++i) squares += std::pow(x.at(at + i), 2);
  const double scale = 1 / std::sqrt(squares / static_cast<double>(size) + kEps);
  std::vector<double> y;
  for (std::int64_t i = 0; i < size; ++i) y.push_back(x.at(at + i) * scale * weight.at(i));
  return y;
}

void check(const StoreSizes& c) {
  const std::vector<std::int32_t> slots = {31, -1, 7, 0, 32, 1'000'000'000, 5};
  const auto tokens = static_cast<std::int64_t>(slots.size());
  HostTensor x = random_tensor(c.x, {tokens, c.columns()}, 2);
  const std::int64_t padding = 3;  // index of a row of NaN, which acts as padding
  for (std::int64_t t = 0; t < tokens; ++t)
    for (std::int64_t i = 0; i < c.columns(); ++i)
      if (t == padding || (i >= c.q_latent && i < c.q_latent + c.between)) x.set(t * c.columns() + i, std::nan(""));
  const HostTensor weight = random_tensor(c.x, {c.latent}, 3, 0.5, 1.5);
  const HostTensor table = random_tensor(DType::kFloat32, {tokens, c.rotated}, 4);
  const HostTensor cache = filled_tensor(c.cache, {kSlots / 4, 4, c.width()}, 9);
  std::vector<HostTensor> operands = {x, weight, table, int_tensor({tokens}, slots), cache};
  if (c.q_latent > 0) {
    operands.push_back(random_tensor(c.x, {c.q_latent}, 5, 0.5, 1.5));
    operands.push_back(poisoned_tensor(c.x, {tokens, c.q_latent}));
  }
  const OpOutcome out =
      run_op(kLatentStore, kLatentStoreCpu, operands, {{"eps", kEps}, {"interleaved", c.interleaved}});

  std::vector<double> expected_cache = cache.values();
  std::vector<double> expected_q;
  for (std::int64_t t = 0; t < tokens; ++t) {
    if (c.q_latent > 0) {
      const std::vector<double> y = normalised(x, t * c.columns(), operands[5], c.q_latent);
      expected_q.insert(expected_q.end(), y.begin(), y.end());
    }
    const std::int64_t slot = slots[static_cast<std::size_t>(t)];
    if (slot < 0 || slot >= kSlots) continue;
    const std::int64_t at = (t + 1) * c.columns() - c.width();
    std::vector<double> row = normalised(x, at, weight, c.latent);
    const std::vector<double> y = turned(c, x, at + c.latent, table, t);
    row.insert(row.end(), y.begin(), y.end());
    std::copy(row.begin(), row.end(), expected_cache.begin() + slot * c.width());
  }
  // A value is rounded to X twice (norm.h), and then to the cache's type.
  const bool exact = c.x == DType::kFloat32 && c.cache == DType::kFloat32;
  const Tolerance allowed = exact ? Tolerance{1e-6, 2e-6} : Tolerance{2e-3, 1.2e-2};
  expect_close(out.operands[4], expected_cache, allowed, "cache");
  if (c.q_latent > 0) expect_close(out.operands[6], expected_q, allowed, "q");
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
      check({.x = x, .cache = cache, .q_latent = 0, .between = 0, .interleaved = interleaved});
      check(
          {.x = x, .cache = cache, .q_latent = 1, .between = 0, .latent = 1, .rotated = 2, .interleaved = interleaved});
      check({.x = x, .cache = cache, .q_latent = 300, .latent = 33, .rotated = 6, .interleaved = interleaved});
      check({.x = x,
             .cache = cache,
             .q_latent = 3000,
             .between = 0,
             .latent = 512,
             .rotated = 64,
             .interleaved = interleaved});
    }
}

TEST(LatentStoreShapes, RefusesOperandsThatDoNotFit) {
  const auto x = [](std::int64_t cols) { return ir::Type{DType::kBFloat16, {ir::Symbol::kTokens, cols}}; };
  const ir::Type weight{DType::kBFloat16, {32}};
  const ir::Type table{DType::kFloat32, {ir::Symbol::kTokens, 8}};
  const ir::Type slots{DType::kInt32, {ir::Symbol::kTokens}};
  const ir::Type cache{DType::kBFloat16, {ir::Symbol::kPages, 16, 40}};
  const ir::Type q_weight{DType::kBFloat16, {24}};
  const ir::Attributes eps{{"eps", 1e-6}};
  const auto error = [&](std::vector<ir::Type> types) { return infer_error(kLatentStore, types, eps); };
  EXPECT_EQ(error({x(40), weight, table, slots, cache}), "");
  EXPECT_EQ(error({x(64), weight, table, slots, cache, q_weight, x(24)}), "");
  EXPECT_THAT(error({x(39), weight, table, slots, cache}), HasSubstr("39 values"));
  EXPECT_THAT(error({x(63), weight, table, slots, cache, q_weight, x(24)}), HasSubstr("63 values"));
  EXPECT_THAT(error({x(64), weight, table, slots, cache, q_weight}), HasSubstr("without q"));
  EXPECT_THAT(error({x(64), weight, table, slots, cache, q_weight, x(25)}), HasSubstr("bf16[T, 25]"));
  const ir::Type odd{DType::kFloat32, {ir::Symbol::kTokens, 7}};
  EXPECT_THAT(error({x(39), weight, odd, slots, cache}), HasSubstr("must be even"));
  const ir::Type narrow{DType::kBFloat16, {ir::Symbol::kPages, 16, 32}};
  EXPECT_THAT(error({x(40), weight, table, slots, narrow}), HasSubstr("bf16[P, 16, 32]"));
  EXPECT_THAT(infer_error(kLatentStore, {x(40), weight, table, slots, cache}, {{"eps", 0.0}}), HasSubstr("eps = 0"));
}

}  // namespace
}  // namespace tessera::testing
