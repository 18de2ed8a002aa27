// Catches: rows that go through another expert's weights; a lost or doubled token; sums that are added in the wrong
// order; weights that are read for experts without tokens; an expert that leaves out some of its tokens; scratch that
// is too small if most tokens choose the same experts; padding that changes the result of a row; and 4-bit weights that
// are unpacked wrongly.
#include "tessera/ops/moe/moe_experts.h"

#include <gtest/gtest.h>

#include "tessera/ops/rows/row_test_util.h"

namespace tessera::testing {
namespace {

using ir::DType;

struct MoeSizes {
  std::int64_t tokens, top_k, experts, hidden, intermediate;
};
struct Form {
  std::string activation = "silu";
  bool gate_up_bias = false;
  bool down_bias = false;
  bool mxfp4 = false;
};

ir::Attributes attributes_of(const Form& form) {
  return {{"activation", form.activation},
          {"limit", 0.5},
          {"gate_up_bias", form.gate_up_bias},
          {"down_bias", form.down_bias},
          {"mxfp4", form.mxfp4}};
}

enum class Choice { kSpread, kOne, kSome, kNone };

// Returns the experts of each token. kSpread spreads the choices over all experts; a token may choose an expert twice.
// kOne gives every token only the last expert. With kSome, some tokens have no expert, and with kNone, no token has
// one.
HostTensor ids_of(const MoeSizes& s, Choice choice) {
  std::vector<std::int32_t> ids;
  for (std::int64_t t = 0; t < s.tokens; ++t)
    for (std::int64_t k = 0; k < s.top_k; ++k) {
      if (choice == Choice::kNone) {
        ids.push_back(-1);
      } else if (choice == Choice::kOne) {
        ids.push_back(k == 0 ? static_cast<std::int32_t>(s.experts - 1) : -1);
      } else if (choice == Choice::kSome && t % 3 == 1) {
        ids.push_back(k % 2 == 0 ? -1 : static_cast<std::int32_t>(s.experts));  // neither -1 nor this id is an expert
      } else {
        ids.push_back(static_cast<std::int32_t>((t * t + t / 2 + k * 3) % s.experts));
      }
    }
  return int_tensor({s.tokens, s.top_k}, ids);
}

// Returns the smallest of the three scale bytes (exponent + 127) that the tests use for rows of `columns` values. With
// these scales, results are about as large as in the other tests.
double least_factor(std::int64_t columns) {
  return 125 - std::round(std::log2(2.5 * std::sqrt(static_cast<double>(columns))));
}

std::vector<HostTensor> make_mxfp4_operands(DType dtype, const MoeSizes& s, const Form& form, Choice choice) {
  const std::int64_t blocks = s.hidden / kMxfp4Block;
  const std::int64_t down_blocks = s.intermediate / kMxfp4Block;
  const double in = least_factor(s.hidden);
  const double out = least_factor(s.intermediate);
  std::vector<HostTensor> operands = {
      random_tensor(dtype, {s.tokens, s.hidden}, 1), ids_of(s, choice),
      random_tensor(DType::kFloat32, {s.tokens, s.top_k}, 2, 0, 1),
      random_tensor(DType::kUInt8, {s.experts, 2 * s.intermediate, s.hidden / 2}, 3, 0, 256),
      random_tensor(DType::kUInt8, {s.experts, s.hidden, s.intermediate / 2}, 4, 0, 256)};
  if (form.gate_up_bias) operands.push_back(random_tensor(dtype, {s.experts, 2 * s.intermediate}, 5));
  if (form.down_bias) operands.push_back(random_tensor(dtype, {s.experts, s.hidden}, 6));
  operands.push_back(random_tensor(DType::kUInt8, {s.experts, 2 * s.intermediate, blocks}, 7, in, in + 3));
  operands.push_back(random_tensor(DType::kUInt8, {s.experts, s.hidden, down_blocks}, 8, out, out + 3));
  return operands;
}

// Unpacks MXFP4 matrices to numbers.
HostTensor unpacked(const HostTensor& packed, const HostTensor& scales) {
  constexpr double kValues[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  HostTensor values{DType::kFloat32, packed.dims, std::vector<std::byte>(packed.bytes.size() * 2 * sizeof(float))};
  values.dims[2] *= 2;
  for (std::int64_t i = 0; i < values.size(); ++i) {
    const auto bits = static_cast<unsigned>(packed.raw<std::uint8_t>(i / 2)) >> (i % 2 * 4) & 15u;
    const double factor = std::ldexp(1.0, scales.raw<std::uint8_t>(i / kMxfp4Block) - 127);
    values.set(i, (bits < 8 ? 1 : -1) * kValues[bits % 8] * factor);
  }
  return values;
}

std::vector<HostTensor> make_operands(DType dtype, const MoeSizes& s, const Form& form,
                                      Choice choice = Choice::kSpread) {
  if (form.mxfp4) return make_mxfp4_operands(dtype, s, form, choice);
  const double in = 2 / std::sqrt(static_cast<double>(s.hidden));
  const double out = 2 / std::sqrt(static_cast<double>(s.intermediate));
  std::vector<HostTensor> operands = {random_tensor(dtype, {s.tokens, s.hidden}, 1), ids_of(s, choice),
                                      random_tensor(DType::kFloat32, {s.tokens, s.top_k}, 2, 0, 1),
                                      random_tensor(dtype, {s.experts, 2 * s.intermediate, s.hidden}, 3, -in, in),
                                      random_tensor(dtype, {s.experts, s.hidden, s.intermediate}, 4, -out, out)};
  if (form.gate_up_bias) operands.push_back(random_tensor(dtype, {s.experts, 2 * s.intermediate}, 5));
  if (form.down_bias) operands.push_back(random_tensor(dtype, {s.experts, s.hidden}, 6));
  return operands;
}

double activate(const std::string& activation, double gate, double up) {
  if (activation == "clamped_swiglu") {
    gate = std::min(gate, 0.5);
    up = std::clamp(up, -0.5, 0.5);
    return gate / (1 + std::exp(-1.702 * gate)) * (up + 1);
  }
  if (activation == "gelu_tanh")
    return gate / 2 * (1 + std::tanh(0.79788456080286536 * (gate + 0.044715 * gate * gate * gate))) * up;
  return gate / (1 + std::exp(-gate)) * up;
}

// The elements of x and of the matrices.
struct Numbers {
  std::vector<double> x, gate_up, down;
};

// Adds weight · (the expert's result for the row of x of `token`) to y.
void add_expert(const std::vector<HostTensor>& operands, const Numbers& numbers, const Form& form, std::int64_t token,
                std::int64_t expert, double weight, std::span<double> y) {
  const std::int64_t hidden = operands[0].dims[1];
  const std::int64_t intermediate = operands[4].dims[2];
  std::vector<double> both;
  for (std::int64_t i = 0; i < 2 * intermediate; ++i) {
    const std::int64_t row = expert * 2 * intermediate + i;
    both.push_back((form.gate_up_bias ? operands[5].at(row) : 0) +
                   dot(numbers.x.data() + token * hidden, numbers.gate_up.data() + row * hidden, hidden));
  }
  std::vector<double> activated;
  for (auto gate = both.begin(); std::ssize(activated) < intermediate; ++gate)
    activated.push_back(activate(form.activation, *gate, gate[intermediate]));
  for (std::int64_t h = 0; h < hidden; ++h) {
    const std::int64_t row = expert * hidden + h;
    y[static_cast<std::size_t>(h)] +=
        weight * ((form.down_bias ? operands.back().at(row) : 0) +
                  dot(activated.data(), numbers.down.data() + row * intermediate, intermediate));
  }
}

std::vector<double> reference(std::vector<HostTensor> operands, const Form& form) {
  if (form.mxfp4) {
    operands[3] = unpacked(operands[3], operands[operands.size() - 2]);
    operands[4] = unpacked(operands[4], operands.back());
    operands.resize(operands.size() - 2);
  }
  const std::int64_t tokens = operands[0].dims[0];
  const std::int64_t hidden = operands[0].dims[1];
  const std::int64_t top_k = operands[1].dims[1];
  const Numbers numbers{.x = operands[0].values(), .gate_up = operands[3].values(), .down = operands[4].values()};
  std::vector<double> y(static_cast<std::size_t>(tokens * hidden));
  for (std::int64_t i = 0; i < tokens * top_k; ++i) {
    const auto expert = static_cast<std::int64_t>(operands[1].at(i));
    if (expert < 0 || expert >= operands[3].dims[0]) continue;
    add_expert(operands, numbers, form, i / top_k, expert, operands[2].at(i),
               std::span(y).subspan(static_cast<std::size_t>(i / top_k * hidden), static_cast<std::size_t>(hidden)));
  }
  return y;
}

// Returns a tolerance for values near 1 that come from float32 sums and three roundings to the dtype.
Tolerance allowed(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16: return {4e-2, 1e-2};
    case DType::kFloat16: return {5e-3, 2e-3};
    default: return {1e-5, 1e-5};
  }
}

std::string describe(const MoeSizes& s, const Form& form) {
  return form.activation + " " + std::to_string(s.tokens) + "x" + std::to_string(s.top_k) + " of " +
         std::to_string(s.experts) + ", " + std::to_string(s.hidden) + "x" + std::to_string(s.intermediate);
}

void check(DType dtype, const MoeSizes& s, const Form& form, Choice choice = Choice::kSpread) {
  const std::vector<HostTensor> operands = make_operands(dtype, s, form, choice);
  const OpOutcome out = run_op(kMoeExperts, kMoeExpertsCpu, operands, attributes_of(form));
  expect_close(out.results[0], reference(operands, form), allowed(dtype), describe(s, form));
}

class MoeExperts : public ::testing::TestWithParam<DType> {};

TEST_P(MoeExperts, MatchesTheReference) {
  const Form with_biases{.activation = "clamped_swiglu", .gate_up_bias = true, .down_bias = true};
  for (const MoeSizes& s : {MoeSizes{1, 2, 8, 64, 48}, MoeSizes{1, 1, 1, 1, 1}, MoeSizes{3, 2, 5, 33, 7},
                            MoeSizes{9, 4, 16, 72, 50}, MoeSizes{70, 3, 6, 100, 49}, MoeSizes{33, 8, 64, 128, 96}})
    for (const Form& form :
         {Form{}, Form{.activation = "gelu_tanh"}, with_biases, Form{.gate_up_bias = true}, Form{.down_bias = true}})
      check(GetParam(), s, form);
}

// Covers rows of one MXFP4 block, rows whose length is not a multiple of the columns of a warp or stage, and more
// tokens than the kernels without a sort accept.
TEST_P(MoeExperts, TakesWeightsOfFourBits) {
  const Form form{.activation = "clamped_swiglu", .gate_up_bias = true, .down_bias = true, .mxfp4 = true};
  for (const MoeSizes& s : {MoeSizes{1, 1, 1, 32, 32}, MoeSizes{1, 4, 8, 96, 160}, MoeSizes{5, 2, 3, 64, 96},
                            MoeSizes{40, 4, 6, 160, 32}, MoeSizes{3, 4, 32, 640, 288}, MoeSizes{300, 2, 4, 96, 64}})
    for (const Form& f : {form, Form{.mxfp4 = true}, Form{.activation = "gelu_tanh", .down_bias = true, .mxfp4 = true}})
      check(GetParam(), s, f);
  check(GetParam(), {500, 2, 4, 64, 32}, form, Choice::kOne);
  check(GetParam(), {60, 2, 4, 64, 32}, form, Choice::kSome);
  // Covers one token whose four or five ids name only one expert, and one token whose ids name none.
  for (const std::int64_t top_k : {4, 5}) check(GetParam(), {1, top_k, 8, 96, 160}, form, Choice::kOne);
  check(GetParam(), {1, 4, 8, 96, 160}, form, Choice::kNone);
}

// The lengths of rows are multiples of 64 columns, for which CUDA has special kernels on Hopper. The sizes cover rows
// shorter and longer than the chunks in which a kernel copies them, more than eight rows for one expert, tiles of all
// widths, and experts without rows.
TEST_P(MoeExperts, TakesFourBitsInWholeStages) {
  const Form form{.activation = "clamped_swiglu", .gate_up_bias = true, .down_bias = true, .mxfp4 = true};
  for (const MoeSizes& s : {MoeSizes{1, 4, 8, 64, 64}, MoeSizes{3, 4, 8, 1152, 320}, MoeSizes{19, 4, 6, 192, 128}})
    check(GetParam(), s, form);
  // Covers one token, with more columns of y than fit in the slots of a block's ring buffer. CUDA multiplies two
  // experts at a time. In some of these cases, one of the two experts is missing, or both are.
  for (const MoeSizes& s : {MoeSizes{1, 4, 8, 1152, 320}, MoeSizes{1, 5, 8, 192, 2816}, MoeSizes{1, 16, 20, 64, 192}})
    for (const Choice choice : {Choice::kSpread, Choice::kOne, Choice::kNone}) check(GetParam(), s, form, choice);
  check(GetParam(), {12, 2, 4, 128, 64}, form, Choice::kOne);
  check(GetParam(), {33, 3, 7, 128, 64}, form, Choice::kSome);
  check(GetParam(), {301, 2, 4, 192, 128}, form);
  check(GetParam(), {200, 3, 6, 128, 320}, {.activation = "gelu_tanh", .mxfp4 = true}, Choice::kSome);
  for (const std::int64_t tokens : {65, 97, 161, 190, 255, 257})
    check(GetParam(), {tokens, 2, 3, 64, 64}, form, Choice::kOne);
}

// Covers tiles of all widths in the kernels that CUDA has for prefills on Hopper. One expert has all rows. A tile has
// up to 256 rows, and a second tile has the rest. A kernel processes whole boxes of 256 columns first, and the
// remaining columns in stages of 64. So a row of 576 columns is two boxes and one stage, and a row of 448 columns is
// one box and three stages.
TEST_P(MoeExperts, TakesFourBitsInBoxes) {
  if (GetParam() != DType::kBFloat16) GTEST_SKIP() << "only bfloat16 has such kernels";
  const Form form{.gate_up_bias = true, .down_bias = true, .mxfp4 = true};
  for (const std::int64_t tokens : {150, 190, 224, 256 + 20, 256 + 40, 256 + 90, 256 + 128})
    check(GetParam(), {tokens, 2, 3, 576, 448}, form, Choice::kOne);
}

// Covers every value in either half of a byte, and scale factors at the limits of float32 and bfloat16.
TEST_P(MoeExperts, UnpacksEveryFourBitValue) {
  const Form form{.down_bias = true, .mxfp4 = true};
  std::vector<HostTensor> operands = make_operands(GetParam(), {1, 1, 1, 32, 32}, form);
  for (std::int64_t h = 0; h < 32; ++h) operands[0].set(h, h == 0 ? 1 : 0);
  // The gate is 6 and up is 1 in the first two of the 32 values of an activated row, and both are 0 in the others.
  // Therefore only the first two columns of the down matrix matter. Half of its rows hold a value in the first column,
  // and the other half in the second column.
  for (std::int64_t i = 0; i < operands[3].size(); ++i)
    operands[3].set(i, i == 0 || i == 16 ? 7 : i == 32 * 16 || i == 33 * 16 ? 2 : 0);
  for (std::int64_t i = 0; i < 64; ++i) operands[6].set(i, 127);
  for (int h = 0; h < 32; ++h) {
    for (int i = 0; i < 16; ++i) operands[4].set(h * 16 + i, i > 0 ? 0x77 : h < 16 ? h : h % 16 * 16);
    operands[5].set(h, 0);
    operands[7].set(h, h % 3 == 0 ? 127 : 120);
  }
  const OpOutcome out = run_op(kMoeExperts, kMoeExpertsCpu, operands, attributes_of(form));
  expect_close(out.results[0], reference(operands, form), {1e-6, 1e-2}, "each value");
  operands[7].set(1, 255);
  EXPECT_TRUE(std::isnan(run_op(kMoeExperts, kMoeExpertsCpu, operands, attributes_of(form)).results[0].at(1)));
}

// The scale factors of gate_up are far from one, and x is scaled by their inverse, so that the products are near one.
// The kernels' sums must not lose these products. A scale byte of 255 makes the values that it scales NaN, and no other
// values.
void expect_far_factors(DType dtype, const MoeSizes& s) {
  const Form form{.mxfp4 = true};
  std::vector<HostTensor> operands = make_operands(dtype, s, form);
  const HostTensor near = operands[5];
  for (const int far : {-100, 100}) {  // gate_up is scaled by 2^(far / 2), and x by the inverse
    for (std::int64_t i = 0; i < near.size(); ++i) operands[5].set(i, near.at(i) + far / 2.0);
    for (std::int64_t i = 0; i < s.tokens * s.hidden; ++i)
      operands[0].set(i, std::ldexp(1.0 - static_cast<double>(i % 64) / 100, -far / 2));
    const OpOutcome out = run_op(kMoeExperts, kMoeExpertsCpu, operands, attributes_of(form));
    expect_close(out.results[0], reference(operands, form), allowed(dtype),
                 "factors moved by " + std::to_string(far / 2));
  }
  // Sets scale bytes of 255 in the first row of expert 0's down matrix, and in the last row of expert 1's down matrix.
  const std::int64_t blocks = s.intermediate / kMxfp4Block;
  operands[6].set(0, 255);
  operands[6].set(2 * s.hidden * blocks - 1, 255);
  const OpOutcome out = run_op(kMoeExperts, kMoeExpertsCpu, operands, attributes_of(form));
  for (std::int64_t i = 0; i < s.tokens * s.hidden; ++i) {
    const std::int64_t h = i % s.hidden;
    EXPECT_EQ(std::isnan(out.results[0].at(i)), h == 0 || h == s.hidden - 1) << describe(s, form) << ", element " << i;
  }
}

TEST_P(MoeExperts, FactorsMayBeFarFromOne) {
  if (GetParam() == DType::kFloat16) GTEST_SKIP() << "f16 has no numbers so large";
  expect_far_factors(GetParam(), {1, 2, 2, 64, 64});
  expect_far_factors(GetParam(), {140, 2, 2, 320, 320});
}

// Covers more rows of one expert than a block has, and experts without rows. With 60 and with 5 tokens of a 16-bit
// type, CUDA uses its kernels for few rows.
TEST_P(MoeExperts, AllTokensMayChooseOneExpert) {
  check(GetParam(), {500, 2, 4, 40, 24}, {}, Choice::kOne);
  check(GetParam(), {60, 2, 4, 40, 24}, {}, Choice::kOne);
  check(GetParam(), {5, 3, 4, 40, 24}, {}, Choice::kOne);
}

// Covers sums that CUDA splits among warps, or computes in more stages than fit in shared memory at once. CUDA's decode
// kernel copies whole rows of weights if two stages of them fit in its ring buffer. Otherwise, as with rows of 2304
// columns, it copies parts of rows.
TEST_P(MoeExperts, TakesLongRows) {
  check(GetParam(), {3, 2, 4, 2304, 64}, {.down_bias = true});
  check(GetParam(), {3, 2, 4, 64, 1056}, {.down_bias = true});
  check(GetParam(), {2, 2, 4, 600, 264}, {.gate_up_bias = true});
  check(GetParam(), {65, 2, 3, 520, 264}, {.gate_up_bias = true});
}

// Here experts have sixteen or more rows on average. For such experts CUDA has a special kernel on Hopper. The sizes
// cover tiles of all widths, several tiles of an expert, experts without rows, and a partly empty last tile of weights
// and last stage.
TEST_P(MoeExperts, TakesManyRowsOfAnExpert) {
  const Form with_biases{.activation = "clamped_swiglu", .gate_up_bias = true, .down_bias = true};
  check(GetParam(), {330, 4, 5, 80, 72}, with_biases);
  check(GetParam(), {601, 2, 4, 64, 200}, {.activation = "gelu_tanh"});
  check(GetParam(), {700, 3, 16, 144, 40}, {.down_bias = true}, Choice::kSome);
  for (const std::int64_t tokens : {161, 190, 225, 255, 256, 257, 290, 530})
    check(GetParam(), {tokens, 2, 6, 48, 24}, {.gate_up_bias = true}, Choice::kOne);
  for (const std::int64_t tokens : {65, 97, 129})
    for (const Choice choice : {Choice::kOne, Choice::kSpread}) check(GetParam(), {tokens, 2, 3, 272, 136}, {}, choice);
}

// Uses the sizes of a real model, with more rows and with fewer rows than CUDA's decode kernel accepts.
TEST_P(MoeExperts, TakesLargeExperts) {
  for (const std::int64_t tokens : {3, 33}) check(GetParam(), {tokens, 4, 4, 2048, 768}, {}, Choice::kOne);
}

// All rows of weights have a multiple of 32 columns, as CUDA's decode kernel requires. The sizes cover several experts
// in a block, more experts than fit in a block's shared memory, groups of eight rows, and an odd number of stages.
TEST_P(MoeExperts, TakesWholeSteps) {
  const Form with_biases{.activation = "clamped_swiglu", .gate_up_bias = true, .down_bias = true};
  for (const MoeSizes& s : {MoeSizes{1, 2, 8, 64, 32}, MoeSizes{7, 4, 16, 1056, 224}, MoeSizes{40, 6, 9, 160, 96}})
    for (const Form& form : {Form{}, Form{.activation = "gelu_tanh"}, with_biases}) check(GetParam(), s, form);
  check(GetParam(), {21, 2, 4, 128, 64}, with_biases, Choice::kOne);
  check(GetParam(), {31, 8, 64, 96, 64}, with_biases, Choice::kSome);
  check(GetParam(), {32, 8, 128, 64, 32}, with_biases);
  check(GetParam(), {32, 8, 64, 64, 704}, {});  // only nine stages of the down matrix fit in a block's shared memory
}

// Covers more tokens than the kernels compute at a time (2048 on the CPU and 4096 on CUDA).
TEST_P(MoeExperts, TakesManyTokens) { check(GetParam(), {4300, 2, 6, 16, 8}, {.down_bias = true}, Choice::kSome); }

TEST_P(MoeExperts, RowsWithoutExpertsAreZeroEvenWithNan) {
  const MoeSizes s{31, 2, 6, 48, 33};
  std::vector<HostTensor> operands = make_operands(GetParam(), s, {.down_bias = true}, Choice::kSome);
  const std::vector<double> expected = reference(operands, {.down_bias = true});
  for (std::int64_t t = 1; t < s.tokens; t += 3) {
    for (std::int64_t h = 0; h < s.hidden; ++h) operands[0].set(t * s.hidden + h, std::nan(""));
    for (std::int64_t k = 0; k < s.top_k; ++k) operands[2].set(t * s.top_k + k, std::nan(""));
  }
  const OpOutcome out = run_op(kMoeExperts, kMoeExpertsCpu, operands, attributes_of({.down_bias = true}));
  expect_close(out.results[0], expected, allowed(GetParam()), "NaN in rows without experts");
  for (std::int64_t h = 0; h < s.hidden; ++h) EXPECT_EQ(out.results[0].at(s.hidden + h), 0);
  EXPECT_EQ(run_op(kMoeExperts, kMoeExpertsCpu, make_operands(GetParam(), {0, 2, 4, 16, 8}, {}), attributes_of({}))
                .results[0]
                .size(),
            0);
}

// A token's NaN reaches no other token, although they share experts.
TEST_P(MoeExperts, NanStaysInItsRow) {
  const MoeSizes s{20, 3, 5, 64, 32};
  std::vector<HostTensor> operands = make_operands(GetParam(), s, {});
  std::vector<double> expected = reference(operands, {});
  for (std::int64_t h = 0; h < s.hidden; ++h) operands[0].set(7 * s.hidden + h, std::nan(""));
  std::fill_n(expected.begin() + 7 * s.hidden, s.hidden, std::nan(""));
  const OpOutcome out = run_op(kMoeExperts, kMoeExpertsCpu, operands, attributes_of({}));
  expect_close(out.results[0], expected, allowed(GetParam()), "NaN in row 7");
}

// A row has the same bits alone and among other rows, even if other tokens choose the same experts.
TEST_P(MoeExperts, ARowsBitsDoNotDependOnOtherRows) {
  ForwardContext deterministic;
  deterministic.limits.deterministic = true;
  for (const MoeSizes& s : {MoeSizes{300, 2, 3, 70, 50}, MoeSizes{300, 4, 40, 64, 32}})
    expect_any_row_count(kMoeExperts, kMoeExpertsCpu, make_operands(GetParam(), s, {}), {0, 1, 2}, {1, 3, 8, 60, 299},
                         attributes_of({}), deterministic);
  const Form mxfp4{.mxfp4 = true};
  expect_any_row_count(kMoeExperts, kMoeExpertsCpu, make_operands(GetParam(), {300, 4, 16, 96, 64}, mxfp4), {0, 1, 2},
                       {1, 3, 8, 60, 299}, attributes_of(mxfp4), deterministic);
}

INSTANTIATE_TEST_SUITE_P(Types, MoeExperts, ::testing::Values(DType::kFloat32, DType::kBFloat16, DType::kFloat16),
                         [](const auto& test) { return std::string(ir::dtype_name(test.param)); });

}  // namespace
}  // namespace tessera::testing
