// Catches: a rotation that has the wrong sign or rotates the wrong pairs; angles whose precision differs from Hugging
// Face's; a range reduction that fails for large angles; values past the rotated dimensions of a head (the first Dr)
// that are rotated or lost.
#include "tessera/ops/rows/rotary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/ops/rows/row_test_util.h"

namespace tessera {
namespace {

using ir::DType;
using ir::Symbol;
using testing::expect_close;
using ::testing::HasSubstr;
using testing::HostTensor;
using testing::infer_error;
using testing::int_tensor;
using testing::random_tensor;
using testing::tolerance;

HostTensor inverse_frequencies(std::int64_t half, double base) {
  HostTensor f = testing::poisoned_tensor(DType::kFloat32, {half});
  for (std::int64_t i = 0; i < half; ++i) f.set(i, std::pow(base, -static_cast<double>(i) / static_cast<double>(half)));
  return f;
}

TEST(Rotary, TableMatchesTheReference) {
  const std::vector<std::int32_t> positions{0, 1, 2, 3, 17, 511, 2047, 40960, 131071, 1048575, 16777215};
  for (const double scale : {1.0, 1.25}) {
    for (const std::int64_t half : {1, 8, 37, 64}) {
      const HostTensor f = inverse_frequencies(half, 1e6);
      ir::Attributes attributes;
      if (scale != 1.0) attributes.emplace_back("scale", scale);
      const auto out = testing::run_op(kRotaryTable, kRotaryTableCpu, {int_tensor({11}, positions), f}, attributes);
      std::vector<double> expected;
      for (const std::int32_t p : positions) {
        for (const bool sine : {false, true}) {
          for (std::int64_t i = 0; i < half; ++i) {
            const double angle = static_cast<double>(static_cast<float>(p) * f.raw<float>(i));
            expected.push_back((sine ? std::sin(angle) : std::cos(angle)) * scale);
          }
        }
      }
      expect_close(out.results[0], expected, {1e-7, 1e-7}, "rotary_table, half " + std::to_string(half));
    }
  }
}

TEST(Rotary, RowsGrowWithThePosition) {
  const std::vector<std::int32_t> positions{0, 1, 15, 16, 17, 31, 32, 511, 131071};
  const HostTensor f = inverse_frequencies(8, 1e6);
  const auto out = testing::run_op(kRotaryTable, kRotaryTableCpu, {int_tensor({9}, positions), f},
                                   {{"scale", 1.25}, {"growth", 0.1}, {"growth_length", std::int64_t{16}}});
  std::vector<double> expected;
  for (const std::int32_t p : positions) {
    const double scale = 1.25 * (1 + 0.1 * std::log(1 + std::floor(p / 16.0)));
    for (const bool sine : {false, true}) {
      for (std::int64_t i = 0; i < 8; ++i) {
        const double angle = static_cast<double>(static_cast<float>(p) * f.raw<float>(i));
        expected.push_back((sine ? std::sin(angle) : std::cos(angle)) * scale);
      }
    }
  }
  expect_close(out.results[0], expected, {1e-7, 1e-7}, "rotary_table that grows");
}

TEST(Rotary, RefusesGrowthWithoutLengthOrInThreeDimensions) {
  const ir::Type f{DType::kFloat32, {8}};
  const ir::Type positions{DType::kInt32, {Symbol::kTokens}};
  const ir::Attribute length = std::int64_t{16};
  EXPECT_EQ(infer_error(kRotaryTable, {positions, f}, {{"growth", 0.1}, {"growth_length", length}}), "");
  EXPECT_THAT(infer_error(kRotaryTable, {positions, f}, {{"growth", 0.1}}), HasSubstr("belong together"));
  EXPECT_THAT(infer_error(kRotaryTable, {positions, f}, {{"growth_length", length}}), HasSubstr("growth"));
  EXPECT_THAT(infer_error(kRotaryTable, {positions, f}, {{"growth", 0.1}, {"growth_length", std::int64_t{0}}}),
              HasSubstr("belong together"));
  EXPECT_THAT(
      infer_error(kRotaryTable, {{DType::kInt32, {3, Symbol::kTokens}}, f},
                  {{"sections", std::vector<std::int64_t>{8, 0, 0}}, {"growth", 0.1}, {"growth_length", length}}),
      HasSubstr("in one dimension"));
}

// `axes` lists, for each of 8 pairs, which of a token's three positions rotates the pair. The sections follow one
// another, as in Qwen2.5-VL, or are interleaved, as in Qwen3-VL and Qwen3.5.
TEST(Rotary, TableOfThreePositionsMatchesTheReference) {
  struct Case {
    std::vector<std::int64_t> sections;
    bool interleaved;
    std::vector<std::size_t> axes;
  };
  const Case cases[] = {{{2, 3, 3}, false, {0, 0, 1, 1, 1, 2, 2, 2}}, {{2, 3, 3}, true, {0, 1, 2, 0, 1, 2, 0, 1}},
                        {{5, 1, 2}, true, {0, 1, 2, 0, 0, 2, 0, 0}},  {{8, 0, 0}, false, {0, 0, 0, 0, 0, 0, 0, 0}},
                        {{8, 0, 0}, true, {0, 0, 0, 0, 0, 0, 0, 0}},  {{0, 8, 0}, false, {1, 1, 1, 1, 1, 1, 1, 1}}};
  const std::vector<std::vector<std::int32_t>> positions{
      {0, 7, 7, 131071, 3}, {0, 9, 7, 5, 1048575}, {0, 8, 7, 40960, 2}};
  std::vector<std::int32_t> all;
  for (const auto& axis : positions) all.insert(all.end(), axis.begin(), axis.end());
  const HostTensor f = inverse_frequencies(8, 1e6);
  for (const Case& c : cases) {
    ir::Attributes attributes{{"sections", c.sections}, {"scale", 1.25}};
    if (c.interleaved) attributes.emplace_back("interleaved", true);
    const auto out = testing::run_op(kRotaryTable, kRotaryTableCpu, {int_tensor({3, 5}, all), f}, attributes);
    std::vector<double> expected;
    for (std::size_t t = 0; t < 5; ++t) {
      for (const bool sine : {false, true}) {
        for (std::size_t i = 0; i < 8; ++i) {
          const auto p = static_cast<float>(positions[c.axes[i]][t]);
          const double angle = static_cast<double>(p * f.raw<float>(static_cast<std::int64_t>(i)));
          expected.push_back((sine ? std::sin(angle) : std::cos(angle)) * 1.25);
        }
      }
    }
    expect_close(out.results[0], expected, {1e-7, 1e-7}, "rotary_table of sections");
  }
}

TEST(Rotary, EqualPositionsGiveThePlainTable) {
  std::vector<std::int32_t> positions;
  for (std::int32_t t = 0; t < 67; ++t) positions.push_back(t * 613);
  std::vector<std::int32_t> thrice;
  for (int axis = 0; axis < 3; ++axis) thrice.insert(thrice.end(), positions.begin(), positions.end());
  const HostTensor f = inverse_frequencies(64, 1e6);
  const auto plain = testing::run_op(kRotaryTable, kRotaryTableCpu, {int_tensor({67}, positions), f});
  for (const bool interleaved : {false, true}) {
    ir::Attributes attributes{{"sections", std::vector<std::int64_t>{16, 24, 24}}};
    if (interleaved) attributes.emplace_back("interleaved", true);
    const auto out = testing::run_op(kRotaryTable, kRotaryTableCpu, {int_tensor({3, 67}, thrice), f}, attributes);
    EXPECT_EQ(out.results[0].bytes, plain.results[0].bytes);
  }
}

TEST(Rotary, RefusesSectionsThatDoNotFit) {
  const ir::Type positions{DType::kInt32, {3, Symbol::kTokens}};
  const ir::Type f{DType::kFloat32, {8}};
  const auto error = [&](const ir::Type& of, std::vector<std::int64_t> sections) {
    return infer_error(kRotaryTable, {of, f}, {{"sections", std::move(sections)}});
  };
  EXPECT_EQ(error(positions, {2, 3, 3}), "");
  EXPECT_EQ(testing::infer_types(kRotaryTable, {positions, f}, {{"sections", std::vector<std::int64_t>{2, 3, 3}}})
                .value()[0]
                .to_string(),
            "f32[T, 16]");
  EXPECT_THAT(error(positions, {2, 3, 4}), HasSubstr("add up to the 8 pairs"));
  EXPECT_THAT(error(positions, {-1, 6, 3}), HasSubstr("add up to the 8 pairs"));
  EXPECT_THAT(error(positions, {4, 4}), HasSubstr("three numbers"));
  EXPECT_THAT(error({DType::kInt32, {Symbol::kTokens}}, {2, 3, 3}), HasSubstr("must be i32[3, T]"));
  EXPECT_THAT(error({DType::kInt32, {2, Symbol::kTokens}}, {2, 3, 3}), HasSubstr("must be i32[3, T]"));
  EXPECT_THAT(infer_error(kRotaryTable, {positions, f}), HasSubstr("belong together"));
  EXPECT_THAT(infer_error(kRotaryTable, {{DType::kInt32, {Symbol::kTokens}}, f}, {{"interleaved", true}}),
              HasSubstr("belong together"));
}

// Follows Hugging Face's apply_rotary_pos_emb: x·cos + rotate_half(x)·sin, where both halves of x use the same cosines
// and sines. If interleaved, follows GPT-J's formula with rotate_every_two.
std::vector<double> reference(const HostTensor& x, const HostTensor& table, std::int64_t head_dim, bool interleaved) {
  const std::int64_t cols = x.dims[1];
  const std::int64_t rotated = table.dims[1];
  const std::int64_t half = rotated / 2;
  std::vector<double> y = x.values();
  for (std::int64_t first = 0; first < x.size(); first += head_dim) {
    const std::int64_t row = first / cols * rotated;
    for (std::int64_t i = 0; i < rotated; ++i) {
      const std::int64_t angle = interleaved ? i / 2 : i % half;
      double turned = 0;
      if (interleaved)
        turned = i % 2 == 0 ? -x.at(first + i + 1) : x.at(first + i - 1);
      else
        turned = i < half ? -x.at(first + i + half) : x.at(first + i - half);
      y[static_cast<std::size_t>(first + i)] =
          x.at(first + i) * table.at(row + angle) + turned * table.at(row + half + angle);
    }
  }
  return y;
}

TEST(Rotary, AgreesWithHuggingFace) {
  for (const DType dtype : testing::kFloatingDTypes) {
    for (const bool interleaved : {false, true}) {
      // A case is head_dim, the number of rotated values in a head, and the number of heads.
      for (const auto& [d, rotated, heads] : {std::tuple<std::int64_t, std::int64_t, std::int64_t>{64, 64, 3},
                                              {128, 128, 16},
                                              {80, 20, 2},
                                              {10, 6, 5},
                                              {2, 2, 1}}) {
        for (const std::int64_t rows : {0, 1, 7, 33}) {
          const HostTensor x = random_tensor(dtype, {rows, heads * d}, 1, -2, 2);
          const HostTensor table = random_tensor(DType::kFloat32, {rows, rotated}, 2);
          ir::Attributes attributes{{"head_dim", d}};
          if (interleaved) attributes.emplace_back("interleaved", true);
          const auto out = testing::run_op(kRotary, kRotaryCpu, {x, table}, attributes);
          auto allowed = tolerance(dtype);
          allowed.absolute = 1e-6;
          expect_close(out.results[0], reference(x, table, d, interleaved), allowed,
                       "rotary " + x.type().to_string() + (interleaved ? " interleaved" : "") + " of " +
                           std::to_string(rotated));
        }
      }
    }
  }
}

// The score of two rotated rows depends only on the distance between their positions.
TEST(Rotary, ScoresDependOnDistance) {
  constexpr std::int64_t kDim = 64;
  const HostTensor f = inverse_frequencies(kDim / 2, 1e4);
  const HostTensor qk = random_tensor(DType::kFloat32, {2, kDim}, 1);
  const auto score = [&](std::int32_t p, std::int32_t q) {
    const HostTensor table = testing::run_op(kRotaryTable, kRotaryTableCpu, {int_tensor({2}, {p, q}), f}).results[0];
    const HostTensor y = testing::run_op(kRotary, kRotaryCpu, {qk, table}, {{"head_dim", kDim}}).results[0];
    double sum = 0;
    for (std::int64_t i = 0; i < kDim; ++i) sum += y.at(i) * y.at(kDim + i);
    return sum;
  };
  EXPECT_NEAR(score(5, 3), score(105, 103), 1e-4);
  EXPECT_GT(std::abs(score(5, 3) - score(5, 0)), 1e-2);
}

TEST(Rotary, RowsAreIndependent) {
  for (const DType dtype : testing::kFloatingDTypes) {
    const HostTensor x = random_tensor(dtype, {40, 640}, 1);
    const HostTensor table = random_tensor(DType::kFloat32, {40, 32}, 2);
    testing::expect_rows_independent(kRotary, kRotaryCpu, {x, table}, {0, 1}, {{"head_dim", std::int64_t{64}}});
  }
  std::vector<std::int32_t> positions(200);
  for (std::size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<std::int32_t>(i * i);
  testing::expect_rows_independent(kRotaryTable, kRotaryTableCpu,
                                   {int_tensor({200}, positions), inverse_frequencies(64, 1e4)}, {0});
}

TEST(Rotary, RefusesWhatKernelsCannotTake) {
  const ir::Type x{DType::kBFloat16, {Symbol::kTokens, 256}};
  const ir::Type table{DType::kFloat32, {Symbol::kTokens, 64}};
  const ir::Attributes head_dim{{"head_dim", std::int64_t{64}}};
  EXPECT_EQ(infer_error(kRotary, {x, table}, head_dim), "");
  EXPECT_THAT(infer_error(kRotary, {x, table}, {{"head_dim", std::int64_t{32}}}), HasSubstr("at most head_dim = 32"));
  EXPECT_THAT(infer_error(kRotary, {x, table}, {{"head_dim", std::int64_t{60}}}), HasSubstr("does not divide the 256"));
  EXPECT_THAT(infer_error(kRotary, {x, table}, {{"head_dim", std::int64_t{0}}}), HasSubstr("head_dim = 0"));
  EXPECT_THAT(infer_error(kRotary, {x, {DType::kFloat32, {Symbol::kTokens, 63}}}, head_dim), HasSubstr("must be even"));
  EXPECT_THAT(infer_error(kRotary, {x, {DType::kFloat32, {4, 64}}}, head_dim), HasSubstr("it must be f32[T, 64]"));
  EXPECT_THAT(infer_error(kRotary, {x, {DType::kBFloat16, {Symbol::kTokens, 64}}}, head_dim), HasSubstr("f32[T, 64]"));
  const ir::Type positions{DType::kInt32, {Symbol::kTokens}};
  EXPECT_EQ(testing::infer_types(kRotaryTable, {positions, {DType::kFloat32, {32}}}).value()[0].to_string(),
            "f32[T, 64]");
  EXPECT_THAT(infer_error(kRotaryTable, {positions, {DType::kBFloat16, {32}}}), HasSubstr("inv_freq is bf16"));
  EXPECT_THAT(infer_error(kRotaryTable, {{DType::kInt64, {4}}, {DType::kFloat32, {32}}}),
              HasSubstr("positions is i64"));
  EXPECT_THAT(infer_error(kRotaryTable, {positions, {DType::kFloat32, {32}}}, {{"scale", 0.0}}),
              HasSubstr("scale = 0"));
}

}  // namespace
}  // namespace tessera
