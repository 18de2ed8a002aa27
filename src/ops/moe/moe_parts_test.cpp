// Catches: an expert that two ranks compute, or that no rank computes; rows that reach another rank's expert; and
// padding or scratch that goes wrong if most or all of the chosen experts are on other ranks. The results of two
// unequal parts of the experts must add up to the whole.
#include "tessera/ops/moe/moe_experts.h"

#include <gmock/gmock.h>

#include "tessera/ops/contract/op_test_util.h"
#include "tessera/ops/moe/moe_route.h"

namespace tessera::testing {
namespace {

using ir::DType;

constexpr std::int64_t kExperts = 12;
constexpr std::int64_t kTopK = 3;

// The sizes of an expert.
struct PartSizes {
  std::int64_t hidden = 0;
  std::int64_t intermediate = 0;
  bool mxfp4 = false;
};

// Returns the part [first, first + count) of the first dimension of `whole`.
HostTensor rows_of(const HostTensor& whole, std::int64_t first, std::int64_t count) {
  HostTensor part = whole;
  const std::size_t bytes = whole.bytes.size() / static_cast<std::size_t>(whole.dims[0]);
  const auto begin = whole.bytes.begin() + static_cast<std::ptrdiff_t>(bytes) * first;
  part.dims[0] = count;
  part.bytes.assign(begin, begin + static_cast<std::ptrdiff_t>(bytes) * count);
  return part;
}

// Returns the weights of all experts: gate_up and down, then one bias, then the scale factors if the weights have four
// bits.
std::vector<HostTensor> stacks_of(DType dtype, const PartSizes& s) {
  const std::int64_t rows = 2 * s.intermediate;
  const HostTensor bias = random_tensor(dtype, {kExperts, s.hidden}, 5);
  if (!s.mxfp4)
    return {random_tensor(dtype, {kExperts, rows, s.hidden}, 3, -0.25, 0.25),
            random_tensor(dtype, {kExperts, s.hidden, s.intermediate}, 4, -0.25, 0.25), bias};
  const auto bytes = [](std::vector<std::int64_t> dims, std::uint32_t seed, double from, double to) {
    return random_tensor(DType::kUInt8, std::move(dims), seed, from, to);
  };
  return {bytes({kExperts, rows, s.hidden / 2}, 3, 0, 256), bytes({kExperts, s.hidden, s.intermediate / 2}, 4, 0, 256),
          bias, bytes({kExperts, rows, s.hidden / kMxfp4Block}, 6, 120, 122),
          bytes({kExperts, s.hidden, s.intermediate / kMxfp4Block}, 7, 120, 122)};
}

class MoeParts : public ::testing::TestWithParam<DType> {
 protected:
  // Returns what the experts [first, first + count) add to `tokens` rows. Every third row is padding. No token chooses
  // the last `shunned` experts.
  std::vector<double> run(const PartSizes& s, std::int64_t tokens, std::int64_t first, std::int64_t count,
                          std::int64_t shunned = 0) {
    const DType dtype = GetParam();
    std::vector<std::int32_t> slots;
    for (std::int64_t t = 0; t < tokens; ++t) slots.push_back(t % 3 == 1 ? 0 : 7);
    HostTensor logits = random_tensor(dtype, {tokens, kExperts}, 1, -4, 4);
    for (std::int64_t t = 0; t < tokens; ++t)
      for (std::int64_t e = kExperts - shunned; e < kExperts; ++e) logits.set(t * kExperts + e, -100);
    const OpOutcome routed =
        run_op(kMoeRoute, kMoeRouteCpu, {logits, int_tensor({tokens}, slots)},
               {{"top_k", kTopK}, {"normalise", true}, {"first_expert", first}, {"local_experts", count}});
    std::vector<HostTensor> operands = {random_tensor(dtype, {tokens, s.hidden}, 2), routed.results[0],
                                        routed.results[1]};
    for (const HostTensor& stack : stacks_of(dtype, s)) operands.push_back(rows_of(stack, first, count));
    return run_op(kMoeExperts, kMoeExpertsCpu, operands,
                  {{"down_bias", true}, {"mxfp4", s.mxfp4}, {"routed_experts", kExperts}})
        .results[0]
        .values();
  }

  // Returns a tolerance for a few roundings of values near `greatest`.
  double allowed(double greatest) const {
    const double of_one = GetParam() == DType::kFloat32 ? 1e-5 : GetParam() == DType::kFloat16 ? 4e-3 : 3e-2;
    return of_one * std::max(1.0, greatest);
  }
};

// These sizes reach every kernel. Some have matrix rows whose length is a whole number of a kernel's steps, some have
// other rows, and some have 4-bit weights. The tests run each size with one token, with the tokens of a decode step,
// and with a prefill of 600 tokens, whose experts have enough rows for oneDNN.
constexpr PartSizes kSizes[] = {{64, 48}, {64, 64}, {72, 64}, {64, 64, true}, {96, 160, true}};

TEST_P(MoeParts, AddUpToTheWhole) {
  for (const PartSizes& s : kSizes)
    for (const std::int64_t tokens : {1, 9, 60, 600}) {
      const std::vector<double> whole = run(s, tokens, 0, kExperts);
      const std::vector<double> first = run(s, tokens, 0, 5);
      const std::vector<double> second = run(s, tokens, 5, kExperts - 5);
      double greatest = 0;
      for (const double value : whole) greatest = std::max(greatest, std::abs(value));
      EXPECT_GT(greatest, 0.1);
      for (std::size_t i = 0; i < whole.size(); ++i)
        EXPECT_NEAR(first[i] + second[i], whole[i], allowed(greatest))
            << i << " of " << tokens << " rows of " << s.hidden << " by " << s.intermediate
            << (s.mxfp4 ? ", mxfp4" : "");
    }
}

// If no token chose an expert of one part, the other part alone gives the whole result.
TEST_P(MoeParts, AnUnchosenPartAddsNothing) {
  constexpr std::int64_t kShunned = 4;
  for (const PartSizes& s : kSizes)
    for (const std::int64_t tokens : {1, 9, 600}) {
      const std::vector<double> whole = run(s, tokens, 0, kExperts, kShunned);
      const std::vector<double> chosen = run(s, tokens, 0, kExperts - kShunned, kShunned);
      EXPECT_THAT(run(s, tokens, kExperts - kShunned, kShunned, kShunned), ::testing::Each(0.0));
      double greatest = 0;
      for (const double value : whole) greatest = std::max(greatest, std::abs(value));
      for (std::size_t i = 0; i < whole.size(); ++i)
        EXPECT_NEAR(chosen[i], whole[i], allowed(greatest)) << i << " of " << tokens << " rows";
    }
}

INSTANTIATE_TEST_SUITE_P(Types, MoeParts, ::testing::Values(DType::kFloat32, DType::kBFloat16, DType::kFloat16),
                         [](const auto& test) { return std::string(ir::dtype_name(test.param)); });

}  // namespace
}  // namespace tessera::testing
