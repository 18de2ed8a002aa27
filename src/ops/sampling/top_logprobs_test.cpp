// Catches: a sum that loses small terms or overflows; tokens with equal logits that are not sorted by id; tokens that
// are lost at the border between two chunks of a row; NaN and masked logits that are not left out; results that depend
// on the batch.
#include "tessera/ops/sampling/top_logprobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "tessera/ops/rows/row_test_util.h"

namespace tessera {
namespace {

using ir::DType;
using ir::Symbol;
using ::testing::Each;
using ::testing::HasSubstr;
using testing::HostTensor;
using testing::infer_error;
using testing::int_tensor;

using testing::kInf;

struct Outcome {
  HostTensor logprobs;
  HostTensor ids;
  HostTensor tops;
};

Outcome top_logprobs(const HostTensor& logits, const std::vector<std::int32_t>& targets) {
  const auto rows = static_cast<std::int64_t>(targets.size());
  testing::OpOutcome out = testing::run_op(kTopLogprobs, kTopLogprobsCpu, {logits, int_tensor({rows}, targets)});
  return {std::move(out.results[0]), std::move(out.results[1]), std::move(out.results[2])};
}

// Compares the results with a reference in double precision that sorts all tokens. Precondition: every row is a
// distribution.
void check(const HostTensor& logits, const std::vector<std::int32_t>& targets, const std::string& what) {
  const auto vocab = static_cast<std::size_t>(logits.dims[1]);
  std::vector<double> logprobs, ids, tops;
  for (std::size_t r = 0; r < targets.size(); ++r) {
    std::vector<double> x(vocab);
    for (std::size_t i = 0; i < vocab; ++i) x[i] = logits.at(static_cast<std::int64_t>(r * vocab + i));
    std::vector<std::size_t> order(vocab);
    std::iota(order.begin(), order.end(), 0);
    std::erase_if(order, [&](std::size_t i) { return std::isnan(x[i]); });
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return x[a] > x[b]; });
    double sum = 0;
    for (const std::size_t i : order) sum += std::exp(x[i] - x[order[0]]);
    const auto logprob = [&](std::size_t i) { return std::isnan(x[i]) ? -kInf : x[i] - x[order[0]] - std::log(sum); };
    logprobs.push_back(logprob(static_cast<std::size_t>(targets[r])));
    for (std::size_t i = 0; i < kMaxTopLogprobs; ++i) {
      ids.push_back(i < order.size() ? static_cast<double>(order[i]) : -1);
      tops.push_back(i < order.size() ? logprob(order[i]) : -kInf);
    }
  }
  const Outcome out = top_logprobs(logits, targets);
  EXPECT_EQ(out.ids.values(), ids) << what;
  const testing::Tolerance allowed{2e-6, 1e-6};
  testing::expect_close(out.logprobs, logprobs, allowed, what + ", targets");
  testing::expect_close(out.tops, tops, allowed, what + ", first");
}

std::vector<std::int32_t> some_targets(std::int64_t rows, std::int64_t vocab) {
  std::vector<std::int32_t> targets;
  for (std::int64_t r = 0; r < rows; ++r) targets.push_back(static_cast<std::int32_t>(r * 7919 % vocab));
  return targets;
}

TEST(TopLogprobs, AgreesWithTheDefinition) {
  for (const std::int64_t vocab : {1, 2, 19, 20, 21, 255, 1000, 4096, 4097, 32000, 151936})
    for (const double range : {0.1, 30.0})
      check(testing::random_tensor(DType::kFloat32, {3, vocab}, static_cast<std::uint32_t>(vocab), -range, range),
            some_targets(3, vocab), "vocabulary " + std::to_string(vocab) + ", range " + std::to_string(range));
}

TEST(TopLogprobs, TiesGoByIdWhereverTheyLie) {
  check(testing::filled_tensor(DType::kFloat32, {2, 10000}, 3), {0, 9999}, "all equal");
  for (const bool ascending : {false, true}) {
    HostTensor x = testing::poisoned_tensor(DType::kFloat32, {1, 9001});
    for (std::int64_t i = 0; i < 9001; ++i) x.set(i, static_cast<double>((ascending ? i : 9000 - i) / 3) * 0.01);
    check(x, {4500}, ascending ? "ascending in threes" : "descending in threes");
  }
  // The most probable tokens all lie at the row's end. 0 and -0 are equal.
  HostTensor x = testing::random_tensor(DType::kFloat32, {1, 20000}, 5, -9, -8);
  for (std::int64_t i = 19970; i < 20000; ++i) x.set(i, i % 2 == 0 ? 0.0 : -0.0);
  check(x, {19999}, "together at the end");
}

TEST(TopLogprobs, LargeLogitsDoNotOverflow) {
  HostTensor x = testing::random_tensor(DType::kFloat32, {2, 5000}, 6, -1, 1);
  for (std::int64_t i = 0; i < 5000; ++i) x.set(i, x.at(i) * 1e37), x.set(5000 + i, -3e38);
  check(x, {77, 78}, "large");
}

TEST(TopLogprobs, NaNAndMaskedLogitsDoNotCount) {
  HostTensor x = testing::random_tensor(DType::kFloat32, {3, 9000}, 7, -5, 5);
  for (std::int64_t i = 0; i < 9000; i += 2) x.set(i, i % 4 == 0 ? -kInf : std::nan(""));
  for (std::int64_t i = 0; i < 9000; ++i) {
    x.set(9000 + i, i < 4 ? 1.5 : -kInf);            // all but four are masked
    x.set(18000 + i, i == 8000 ? 2 : std::nan(""));  // all but one are NaN
  }
  check(x, {2, 3, 8000}, "masked");
  EXPECT_EQ(top_logprobs(x, {4, 4, 4}).logprobs.values(), (std::vector<double>(3, -kInf)));
}

TEST(TopLogprobs, RowsThatAreNoDistributionHaveNoProbabilities) {
  HostTensor x = testing::random_tensor(DType::kFloat32, {3, 5000}, 8);
  for (std::int64_t i = 0; i < 5000; ++i) x.set(i, std::nan("")), x.set(5000 + i, -kInf);
  x.set(10000 + 70, kInf), x.set(10000 + 60, kInf);
  const Outcome out = top_logprobs(x, {1, 1, 60});
  EXPECT_THAT(out.logprobs.values(), Each(-kInf));
  EXPECT_THAT(out.tops.values(), Each(-kInf));
  for (std::int64_t i = 0; i < kMaxTopLogprobs; ++i) {
    EXPECT_EQ(out.ids.at(i), -1) << "no number";
    EXPECT_EQ(out.ids.at(kMaxTopLogprobs + i), static_cast<double>(i)) << "equal ones by id";
  }
  EXPECT_EQ(out.ids.at(2 * kMaxTopLogprobs), 60);
  EXPECT_EQ(out.ids.at(2 * kMaxTopLogprobs + 1), 70);
}

TEST(TopLogprobs, TargetsOutsideTheVocabularyHaveMinusInfinity) {
  const HostTensor x = testing::random_tensor(DType::kFloat32, {4, 100}, 9);
  const std::vector<std::int32_t> outside = {-1, 100, std::numeric_limits<std::int32_t>::max(),
                                             std::numeric_limits<std::int32_t>::min()};
  EXPECT_THAT(top_logprobs(x, outside).logprobs.values(), Each(-kInf));
}

TEST(TopLogprobs, RowsAreIndependent) {
  const HostTensor x = testing::random_tensor(DType::kFloat32, {70, 13001}, 10, -10, 10);
  testing::expect_rows_independent(kTopLogprobs, kTopLogprobsCpu, {x, int_tensor({70}, some_targets(70, 13001))},
                                   {0, 1});
  EXPECT_EQ(top_logprobs(testing::random_tensor(DType::kFloat32, {0, 5}, 1), {}).logprobs.size(), 0);
}

TEST(TopLogprobs, RefusesWhatTheKernelCannotTake) {
  const ir::Type logits{DType::kFloat32, {Symbol::kRows, 1000}};
  const ir::Type targets{DType::kInt32, {Symbol::kRows}};
  const auto types = testing::infer_types(kTopLogprobs, {logits, targets}).value();
  EXPECT_EQ(types[0].to_string(), "f32[R]");
  EXPECT_EQ(types[1].to_string(), "i32[R, 20]");
  EXPECT_EQ(types[2].to_string(), "f32[R, 20]");
  EXPECT_THAT(infer_error(kTopLogprobs, {{DType::kBFloat16, {4, 10}}, targets}), HasSubstr("logits is bf16"));
  EXPECT_THAT(infer_error(kTopLogprobs, {logits, {DType::kInt32, {3}}}), HasSubstr("targets is i32[3]"));
}

}  // namespace
}  // namespace tessera
