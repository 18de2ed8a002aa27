// Catches: an expert that two ranks compute, or none; rows that reach another rank's expert; and padding or scratch
// that goes wrong where most of the chosen experts are elsewhere. Router and experts of two unequal parts add up to the
// whole.
#include "tessera/ops/moe_experts.h"
#include "tessera/ops/moe_route.h"
#include "tessera/ops/op_test_util.h"

namespace tessera::testing {
namespace {

using ir::DType;

constexpr std::int64_t kExperts = 12;
constexpr std::int64_t kTopK = 3;
constexpr std::int64_t kHidden = 64;
constexpr std::int64_t kSize = 48;

// Rows [first, first + count) of the first dimension.
HostTensor rows_of(const HostTensor& whole, std::int64_t first, std::int64_t count) {
  HostTensor part = whole;
  const std::size_t bytes = whole.bytes.size() / static_cast<std::size_t>(whole.dims[0]);
  const auto begin = whole.bytes.begin() + static_cast<std::ptrdiff_t>(bytes) * first;
  part.dims[0] = count;
  part.bytes.assign(begin, begin + static_cast<std::ptrdiff_t>(bytes) * count);
  return part;
}

class MoeParts : public ::testing::TestWithParam<DType> {
 protected:
  // What the experts [first, first + count) add to `tokens` rows, of which every third is padding.
  std::vector<double> run(std::int64_t tokens, std::int64_t first, std::int64_t count) {
    const DType dtype = GetParam();
    std::vector<std::int32_t> slots;
    for (std::int64_t t = 0; t < tokens; ++t) slots.push_back(t % 3 == 1 ? 0 : 7);
    const OpOutcome routed = run_op(
        kMoeRoute, kMoeRouteCpu, {random_tensor(dtype, {tokens, kExperts}, 1, -4, 4), int_tensor({tokens}, slots)},
        {{"top_k", kTopK}, {"normalise", true}, {"first_expert", first}, {"local_experts", count}});
    const std::vector<HostTensor> operands = {
        random_tensor(dtype, {tokens, kHidden}, 2),
        routed.results[0],
        routed.results[1],
        rows_of(random_tensor(dtype, {kExperts, 2 * kSize, kHidden}, 3, -0.25, 0.25), first, count),
        rows_of(random_tensor(dtype, {kExperts, kHidden, kSize}, 4, -0.25, 0.25), first, count),
        rows_of(random_tensor(dtype, {kExperts, kHidden}, 5), first, count)};
    return run_op(kMoeExperts, kMoeExpertsCpu, operands, {{"down_bias", true}, {"routed_experts", kExperts}})
        .results[0]
        .values();
  }
};

// One row, a decode's, and a prefill whose experts have rows for oneDNN.
TEST_P(MoeParts, AddUpToTheWhole) {
  for (const std::int64_t tokens : {1, 9, 400}) {
    const std::vector<double> whole = run(tokens, 0, kExperts);
    const std::vector<double> first = run(tokens, 0, 5);
    const std::vector<double> second = run(tokens, 5, kExperts - 5);
    // A rounding of each part and of the whole, of values near 1.
    const double allowed = GetParam() == DType::kFloat32 ? 1e-5 : GetParam() == DType::kFloat16 ? 4e-3 : 3e-2;
    double greatest = 0;
    for (std::size_t i = 0; i < whole.size(); ++i) {
      EXPECT_NEAR(first[i] + second[i], whole[i], allowed) << i << " of " << tokens << " rows";
      greatest = std::max(greatest, std::abs(whole[i]));
    }
    EXPECT_GT(greatest, 0.1);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, MoeParts, ::testing::Values(DType::kFloat32, DType::kBFloat16, DType::kFloat16),
                         [](const auto& test) { return std::string(ir::dtype_name(test.param)); });

}  // namespace
}  // namespace tessera::testing
