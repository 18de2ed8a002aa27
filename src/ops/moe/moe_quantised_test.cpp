// Catches: experts whose rows use another expert's values or scales; a scale, zero point or factor of the wrong
// columns; sums that read past a row's last column; and, on CUDA, any of these faults in one of the kernels of
// moe_experts.cu.
#include <gtest/gtest.h>

#include <numeric>
#include <optional>

#include "tessera/ops/moe/moe_experts.h"
#include "tessera/ops/quantised/quantised_test_util.h"
#include "tessera/ops/rows/row_test_util.h"

namespace tessera::testing {
namespace {

using ir::DType;
using Values = QuantisedFormat::Values;
using Scales = QuantisedFormat::Scales;

struct ExpertsFormat {
  const char* name;
  QuantisedFormat format;
  std::optional<QuantisedFormat> down = std::nullopt;  // the format of down if it differs
};

constexpr QuantisedFormat codes_of(Values values, Scales scales, std::int64_t group) {
  return {.values = values, .scales = scales, .group_rows = 1, .group_cols = group};
}

constexpr std::int64_t kWholeRow = 1 << 20;
const ExpertsFormat kExpertsFormats[] = {
    {"fp8_blocks", {.values = Values::kE4M3, .group_rows = 128, .group_cols = 128}},
    {"fp8_small_blocks", {.values = Values::kE4M3, .group_rows = 16, .group_cols = 16}},
    {"fp8_channels", {.values = Values::kE4M3, .group_rows = 1, .group_cols = kWholeRow}},
    {"fp8_tensors", {.values = Values::kE4M3, .group_rows = kWholeRow, .group_cols = kWholeRow}},
    {"int8_channels", {.values = Values::kInt8, .group_rows = 1, .group_cols = kWholeRow}},
    {"int4_groups", {.values = Values::kInt4, .group_rows = 1, .group_cols = 32}},
    {"int4_zeros_64", {.values = Values::kInt4, .group_rows = 1, .group_cols = 64, .zeros = true}},
    {"int4_zeros_128", {.values = Values::kInt4, .group_rows = 1, .group_cols = 128, .zeros = true}},
    {"mxfp4_16", {.values = Values::kE2M1, .group_rows = 1, .group_cols = 16}},
    {"nvfp4", {.values = Values::kE2M1, .scales = Scales::kE4M3, .group_rows = 1, .group_cols = 16, .factor = true}},
    {"codes_of_q4_0", codes_of(Values::kInt4, Scales::kFloat16, 32)},
    {"codes_of_q4_k", codes_of(Values::kInt4, Scales::kPairs, 32)},
    {"codes_of_q2_k", codes_of(Values::kInt4, Scales::kPairs, 16)},
    {"codes_of_q8_0", codes_of(Values::kInt8, Scales::kFloat16, 32)},
    {"codes_of_q5_k_and_q6_k", codes_of(Values::kInt8, Scales::kPairs, 32),
     codes_of(Values::kInt8, Scales::kFloat16, 16)},
    {"codes_of_q4_k_and_q6_k", codes_of(Values::kInt4, Scales::kPairs, 32),
     codes_of(Values::kInt8, Scales::kFloat16, 16)},
    {"codes_of_q8_0_and_q4_0", codes_of(Values::kInt8, Scales::kFloat16, 32),
     codes_of(Values::kInt4, Scales::kFloat16, 32)},
    {"fp8_and_int4",
     {.values = Values::kE4M3, .group_rows = 32, .group_cols = 32},
     QuantisedFormat{.values = Values::kInt4, .group_rows = 1, .group_cols = 32}}};

struct ExpertsSizes {
  std::int64_t tokens, top_k, experts, hidden, intermediate;
};

// The experts that the tokens choose. With kSeveral, tokens choose several experts, and some ids name no expert. With
// kLast, all tokens choose the last expert.
enum class Chosen { kSeveral, kLast };

struct QuantisedExpertsCase {
  ExpertsSizes sizes;
  std::string activation = "silu";
  bool biases = false;
  bool subnormal = false;
  ir::Attributes attributes{};
  std::vector<HostTensor> operands{};
  std::vector<double> gate_up{};  // [experts, 2 intermediate, hidden]
  std::vector<double> down{};     // [experts, hidden, intermediate]
};

// Returns `format` with blocks of so few rows that no block has rows of two experts. `rows` is the number of rows of
// one expert. If the format has one scale for all rows, each expert gets a scale of its own.
QuantisedFormat format_for(QuantisedFormat format, std::int64_t rows) {
  format.group_rows = std::gcd(format.group_rows == kWholeRow ? rows : format.group_rows, rows);
  return format;
}

double root_mean_square(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) sum += v * v;
  return std::sqrt(sum / static_cast<double>(values.size()));
}

HostTensor chosen_ids(const ExpertsSizes& s, Chosen chosen) {
  std::vector<std::int32_t> ids;
  for (std::int64_t t = 0; t < s.tokens; ++t)
    for (std::int64_t k = 0; k < s.top_k; ++k) {
      const auto id = static_cast<std::int32_t>((t * t + t / 2 + k * 3) % s.experts);
      if (chosen == Chosen::kLast) {
        ids.push_back(k == 0 ? static_cast<std::int32_t>(s.experts - 1) : -1);
      } else {
        ids.push_back(t % 7 == 5 ? (k % 2 == 0 ? -1 : static_cast<std::int32_t>(s.experts)) : id);
      }
    }
  return int_tensor({s.tokens, s.top_k}, ids);
}

// Replaces the values by subnormal numbers of e4m3. Precondition: each row has one scale.
void make_subnormal(QuantisedCase& matrix, std::int64_t cols) {
  HostTensor& codes = matrix.operands[0];
  for (std::int64_t i = 0; i < codes.size(); ++i) {
    const auto code = static_cast<std::uint8_t>(codes.raw<std::uint8_t>(i) & 0x87);
    codes.set(i, code);
    matrix.values[static_cast<std::size_t>(i)] = value_of(Values::kE4M3, code) * matrix.operands[1].at(i / cols);
  }
}

// Makes the operands. x is scaled so that the sums of gate and up are near 1.
QuantisedExpertsCase make_case(DType dtype, const ExpertsFormat& formats, QuantisedExpertsCase c,
                               Chosen chosen = Chosen::kSeveral) {
  const ExpertsSizes& s = c.sizes;
  const std::int64_t rows = 2 * s.intermediate;
  const QuantisedFormat of_gate_up = format_for(formats.format, rows);
  const QuantisedFormat of_down = format_for(formats.down.value_or(formats.format), s.hidden);
  QuantisedCase gate_up = random_quantised(of_gate_up, s.experts * rows, s.hidden, 3);
  QuantisedCase down = random_quantised(of_down, s.experts * s.hidden, s.intermediate, 23);
  if (c.subnormal) make_subnormal(gate_up, s.hidden);
  if (c.subnormal) make_subnormal(down, s.intermediate);
  const double most = 2 / (root_mean_square(gate_up.values) * std::sqrt(static_cast<double>(s.hidden)));
  c.operands = {random_tensor(dtype, {s.tokens, s.hidden}, 1, -most, most), chosen_ids(s, chosen),
                random_tensor(DType::kFloat32, {s.tokens, s.top_k}, 2, 0, 1), gate_up.operands[0], down.operands[0]};
  if (c.biases) {
    c.operands.push_back(random_tensor(dtype, {s.experts, rows}, 5));
    c.operands.push_back(random_tensor(dtype, {s.experts, s.hidden}, 6));
  }
  for (const QuantisedCase* w : {&gate_up, &down})
    c.operands.insert(c.operands.end(), w->operands.begin() + 1, w->operands.end());
  c.attributes = of_gate_up.attributes();
  const ir::Attributes more = {{"quantised", true},
                               {"activation", c.activation},
                               {"limit", 0.5},
                               {"gate_up_bias", c.biases},
                               {"down_bias", c.biases}};
  c.attributes.insert(c.attributes.end(), more.begin(), more.end());
  for (const auto& [name, value] : of_down.attributes())
    if (name == "values" || name == "scales" || name.starts_with("group_"))
      c.attributes.emplace_back("down_" + name, value);
  c.gate_up = std::move(gate_up.values);
  c.down = std::move(down.values);
  return c;
}

double activated(const std::string& activation, double gate, double up) {
  if (activation == "silu") return gate / (1 + std::exp(-gate)) * up;
  gate = std::min(gate, 0.5);
  up = std::clamp(up, -0.5, 0.5);
  return gate / (1 + std::exp(-1.702 * gate)) * (up + 1);
}

std::vector<double> expected_of(const QuantisedExpertsCase& c) {
  const auto& [tokens, top_k, experts, hidden, intermediate] = c.sizes;
  const std::vector<double> x = c.operands[0].values();
  std::vector<double> y(static_cast<std::size_t>(tokens * hidden));
  std::vector<double> both(static_cast<std::size_t>(2 * intermediate));
  for (std::int64_t pair = 0; pair < tokens * top_k; ++pair) {
    const auto e = static_cast<std::int64_t>(c.operands[1].at(pair));
    if (e < 0 || e >= experts) continue;
    const std::int64_t token = pair / top_k;
    for (std::int64_t i = 0; i < 2 * intermediate; ++i)
      both[static_cast<std::size_t>(i)] =
          dot(x.data() + token * hidden, c.gate_up.data() + (e * 2 * intermediate + i) * hidden, hidden) +
          (c.biases ? c.operands[5].at(e * 2 * intermediate + i) : 0);
    for (std::int64_t i = 0; i < intermediate; ++i)
      both[static_cast<std::size_t>(i)] =
          activated(c.activation, both[static_cast<std::size_t>(i)], both[static_cast<std::size_t>(intermediate + i)]);
    for (std::int64_t h = 0; h < hidden; ++h)
      y[static_cast<std::size_t>(token * hidden + h)] +=
          c.operands[2].at(pair) * (dot(both.data(), c.down.data() + (e * hidden + h) * intermediate, intermediate) +
                                    (c.biases ? c.operands[6].at(e * hidden + h) : 0));
  }
  return y;
}

class QuantisedExperts : public ::testing::TestWithParam<std::tuple<ExpertsFormat, DType>> {
 protected:
  const ExpertsFormat& formats() const { return std::get<0>(GetParam()); }
  DType dtype() const { return std::get<1>(GetParam()); }

  // Compares the operator's result with the reference. The tolerance allows for a few roundings of values near the
  // greatest one.
  void check(QuantisedExpertsCase in, Chosen chosen = Chosen::kSeveral) const {
    const QuantisedExpertsCase c = make_case(dtype(), formats(), std::move(in), chosen);
    const std::vector<double> expected = expected_of(c);
    double greatest = 1;
    for (const double value : expected) greatest = std::max(greatest, std::abs(value));
    const double of_one = dtype() == DType::kFloat32 ? 1e-5 : dtype() == DType::kFloat16 ? 4e-3 : 2e-2;
    const OpOutcome out = run_op(kMoeExperts, kMoeExpertsCpu, c.operands, c.attributes);
    const ExpertsSizes& s = c.sizes;
    expect_close(out.results[0], expected, {of_one * greatest, 0},
                 std::string(std::get<0>(GetParam()).name) + " " + std::to_string(s.tokens) + "x" +
                     std::to_string(s.top_k) + " of " + std::to_string(s.experts) + ", " + std::to_string(s.hidden) +
                     "x" + std::to_string(s.intermediate));
  }
};

// Covers short and long rows of weights, rows that fill a kernel's stage only partly, few and many pairs of a token and
// an expert, and experts that more than eight tokens chose.
TEST_P(QuantisedExperts, MatchTheReference) {
  for (const ExpertsSizes& s :
       {ExpertsSizes{1, 2, 8, 256, 128}, ExpertsSizes{3, 2, 5, 96, 64}, ExpertsSizes{9, 4, 16, 160, 96},
        ExpertsSizes{33, 8, 24, 128, 96}, ExpertsSizes{70, 3, 6, 192, 64}, ExpertsSizes{140, 2, 3, 64, 160}})
    for (const bool more : {false, true})
      check({.sizes = s, .activation = more ? "clamped_swiglu" : "silu", .biases = more});
  check({.sizes = {60, 2, 4, 128, 64}, .biases = true}, Chosen::kLast);
  check({.sizes = {32, 8, 128, 64, 64}});  // more experts than the shared memory of CUDA's decode kernel holds
}

// Covers rows whose length is not a multiple of 32 columns, or not a multiple of 8 columns.
TEST_P(QuantisedExperts, TakeOddSizes) {
  for (const ExpertsSizes& s :
       {ExpertsSizes{5, 2, 3, 80, 48}, ExpertsSizes{40, 2, 3, 112, 16}, ExpertsSizes{90, 2, 3, 48, 80},
        ExpertsSizes{150, 2, 3, 80, 48}, ExpertsSizes{3, 2, 5, 36, 14}, ExpertsSizes{1, 1, 1, 2, 2}})
    check({.sizes = s, .biases = true});
}

// Experts have sixteen or more rows on average. The sizes cover tiles of all widths on CUDA, several tiles of an
// expert, and experts without rows.
TEST_P(QuantisedExperts, TakeManyRowsOfAnExpert) {
  check({.sizes = {330, 4, 5, 128, 64}, .activation = "clamped_swiglu", .biases = true});
  check({.sizes = {601, 2, 4, 64, 192}});
  for (const std::int64_t tokens : {65, 97, 161, 190, 255, 257})
    check({.sizes = {tokens, 2, 3, 192, 64}, .biases = true}, Chosen::kLast);
}

// Numbers of e4m3 below 2^-6 are subnormal, and a conversion to another type may lose them. The matrices have no other
// numbers, because larger ones would hide the loss.
TEST_P(QuantisedExperts, TakeSubnormalNumbers) {
  if (formats().format.values != Values::kE4M3 || formats().format.group_rows != 1) return;
  for (const std::int64_t tokens : {2, 20, 140}) check({.sizes = {tokens, 2, 3, 128, 64}, .subnormal = true});
}

// Covers rows so long that CUDA's kernels copy them in several stages. The CPU has no such stages.
TEST_P(QuantisedExperts, TakeLongRows) {
  check({.sizes = {2, 2, 4, 1152, 416}, .biases = true});
  if (!on_cuda()) return;
  check({.sizes = {1, 2, 2, 2048, 768}});
  check({.sizes = {21, 2, 2, 2048, 768}});
  check({.sizes = {18, 2, 2, 4160, 192}, .biases = true}, Chosen::kLast);
  check({.sizes = {70, 2, 3, 1152, 384}, .biases = true});
  check({.sizes = {3, 2, 4, 128, 3328}, .biases = true});
  check({.sizes = {32, 8, 64, 64, 1408}});
}

TEST_P(QuantisedExperts, DeterministicBitsDoNotDependOnOtherRows) {
  ForwardContext context;
  context.limits.deterministic = true;
  const QuantisedExpertsCase c = make_case(dtype(), formats(), {.sizes = {300, 4, 16, 96, 64}});
  expect_any_row_count(kMoeExperts, kMoeExpertsCpu, c.operands, {0, 1, 2}, {1, 3, 8, 60, 299}, c.attributes, context);
}

INSTANTIATE_TEST_SUITE_P(Formats, QuantisedExperts,
                         ::testing::Combine(::testing::ValuesIn(kExpertsFormats),
                                            ::testing::Values(DType::kFloat32, DType::kBFloat16, DType::kFloat16)),
                         [](const auto& c) {
                           return std::string(std::get<0>(c.param).name) + "_" +
                                  std::string(ir::dtype_name(std::get<1>(c.param)));
                         });

}  // namespace
}  // namespace tessera::testing
