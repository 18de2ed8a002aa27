// Catches: a rotation that differs from the one with which a model was trained. With such a rotation the model still
// produces text. The text gets worse gradually with the position, so the fault is easily overlooked. The tests compare
// formulas with references in double, and with numbers that another program computed.
#include "tessera/model/config/rope.h"

#include <cmath>
#include <numbers>

#include "tessera/model/test_support.h"

namespace tessera {
namespace {

using test::expect_error;

// Computes the published formulas in double, independently of rope.cpp.
std::vector<double> reference(const RopeConfig& rope, int d) {
  std::vector<double> f;
  for (int i = 0; i < d; i += 2) f.push_back(std::pow(rope.theta, -static_cast<double>(i) / d));
  const auto old = static_cast<double>(rope.original_max_position_embeddings);
  if (rope.type == RopeType::kLinear) {
    for (double& x : f) x /= rope.factor;
  } else if (rope.type == RopeType::kLlama3) {
    for (double& x : f) {
      const double turns = old * x / (2 * std::numbers::pi);  // number of turns within the original context
      const double s =
          std::clamp((turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor), 0.0, 1.0);
      x = (1 - s) * x / rope.factor + s * x;
    }
  } else if (rope.type == RopeType::kYarn) {
    const auto at = [&](double beta) {
      return d * std::log(old / (2 * std::numbers::pi * beta)) / (2 * std::log(rope.theta));
    };
    double low = at(rope.beta_fast), high = at(rope.beta_slow);
    if (rope.truncate) low = std::floor(low), high = std::ceil(high);
    low = std::max(low, 0.0), high = std::min(high, d - 1.0);
    if (low == high) high += 0.001;
    for (std::size_t i = 0; i < f.size(); ++i) {
      const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
      f[i] = f[i] / rope.factor * ramp + f[i] * (1 - ramp);
    }
  }
  return f;
}

RopeConfig llama31() {
  return {.type = RopeType::kLlama3, .theta = 5e5, .factor = 8, .original_max_position_embeddings = 8192};
}

TEST(RopeFrequencies, FollowThePublishedFormulas) {
  RopeConfig kimi{.type = RopeType::kYarn, .theta = 5e4, .factor = 32, .original_max_position_embeddings = 4096};
  kimi.beta_fast = kimi.beta_slow = 1;
  RopeConfig untruncated{
      .type = RopeType::kYarn, .theta = 1.5e5, .factor = 32, .original_max_position_embeddings = 4096};
  untruncated.truncate = false;
  const std::pair<RopeConfig, int> cases[] = {
      {{}, 64},
      {{.theta = 1e6}, 128},
      {{.type = RopeType::kLinear, .factor = 3}, 16},
      {llama31(), 128},
      {{.type = RopeType::kLlama3, .theta = 5e5, .factor = 32, .original_max_position_embeddings = 8192}, 64},
      {{.type = RopeType::kYarn, .factor = 4, .original_max_position_embeddings = 64}, 32},
      {{.type = RopeType::kYarn, .theta = 1e6, .factor = 4, .original_max_position_embeddings = 32768}, 128},
      {kimi, 64},
      {untruncated, 64},
      {{.type = RopeType::kYarn, .factor = 4, .original_max_position_embeddings = 4}, 2},
  };
  double greatest = 0;
  for (const auto& [rope, head_dim] : cases) {
    const std::vector<float> got = compute_inv_freq(rope, head_dim);
    const std::vector<double> want = reference(rope, head_dim);
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      const double error = std::abs(static_cast<double>(got[i]) / want[i] - 1);
      greatest = std::max(greatest, error);
      EXPECT_LT(error, 2e-6) << rope_type_name(rope.type) << " head_dim " << head_dim << " pair " << i;
    }
  }
  std::printf("greatest relative difference from double: %.3g\n", greatest);
}

// The expected numbers come from a Python script that uses the same formulas in double. The test also compares
// reference() with these numbers.
TEST(RopeFrequencies, MatchNumbersComputedElsewhere) {
  const auto expect = [](const std::vector<float>& got, std::vector<std::pair<std::size_t, double>> want) {
    for (auto [i, value] : want) EXPECT_NEAR(static_cast<double>(got[i]) / value, 1.0, 2e-6) << "pair " << i;
  };
  expect(compute_inv_freq(llama31(), 128), {{0, 1.0},
                                            {20, 0.01656044008},
                                            {28, 0.003211445995},
                                            {29, 0.002166570764},
                                            {32, 0.000524846161},
                                            {36, 7.784655274e-05},
                                            {63, 3.068925989e-07}});
  expect(compute_inv_freq({.type = RopeType::kYarn, .factor = 4, .original_max_position_embeddings = 64}, 32),
         {{0, 1.0},
          {1, 0.4779901264},
          {2, 0.2213594362},
          {3, 0.09780536755},
          {4, 0.04},
          {5, 0.01405853313},
          {15, 4.445698525e-05}});
  RopeConfig gpt_oss{.type = RopeType::kYarn, .theta = 1.5e5, .factor = 32, .original_max_position_embeddings = 4096};
  gpt_oss.truncate = false;
  expect(compute_inv_freq(gpt_oss, 64),
         {{8, 0.05081327482}, {10, 0.01933500113}, {17, 0.0001293187012}, {18, 3.830881237e-05}});
  expect(
      compute_inv_freq({.type = RopeType::kYarn, .theta = 1e6, .factor = 4, .original_max_position_embeddings = 32768},
                       128),
      {{22, 0.008659643234}, {23, 0.006978305849}, {30, 0.001064360981}, {40, 4.445698525e-05}, {63, 3.102344402e-07}});
}

// Checks Phi 3's formula f_i = 1 / (factor_i · θ^(2i/d)), where d is the number of rotated dimensions.
TEST(RopeFrequencies, LongRopeFollowsTheContext) {
  RopeConfig rope{.type = RopeType::kLongRope, .partial_rotary_factor = 0.75, .factor = 32};
  rope.original_max_position_embeddings = 4096;
  for (int i = 0; i < 48; ++i) {
    rope.short_factor.push_back(1.0 + 0.01 * i);
    rope.long_factor.push_back(1.0 + i);
  }
  for (const auto& [context_length, factors] :
       {std::pair{4096, &rope.short_factor}, std::pair{0, &rope.short_factor}, std::pair{4097, &rope.long_factor}}) {
    const std::vector<float> got = compute_inv_freq(rope, 128, context_length);
    ASSERT_EQ(got.size(), 48u);
    for (std::size_t i = 0; i < got.size(); ++i) {
      const double want = 1.0 / ((*factors)[i] * std::pow(10000.0, static_cast<double>(2 * i) / 96));
      EXPECT_NEAR(static_cast<double>(got[i]) / want, 1.0, 2e-6) << "pair " << i << " at " << context_length;
    }
  }
  EXPECT_FLOAT_EQ(attention_scaling(rope), 1.190238f);  // sqrt(1 + ln 32 / ln 4096)
  rope.factor = 1;
  EXPECT_EQ(attention_scaling(rope), 1.0f);
  rope.attention_factor = 1.25;
  EXPECT_EQ(attention_scaling(rope), 1.25f);
}

// In Gemma 4's formula, d is the size of the whole head, even if only part of the head rotates.
TEST(RopeFrequencies, ProportionalRotatesOnlyTheFirstPairs) {
  const RopeConfig rope{.type = RopeType::kProportional, .theta = 1e6, .partial_rotary_factor = 0.25, .factor = 2};
  const std::vector<float> got = compute_inv_freq(rope, 32);
  ASSERT_EQ(got.size(), 16u);
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double want = i < 4 ? std::pow(1e6, -static_cast<double>(2 * i) / 32) / 2 : 0;
    EXPECT_NEAR(got[i], want, 1e-6 * want) << "pair " << i;
  }
  EXPECT_EQ(attention_scaling(rope), 1.0f);
}

TEST(RopeScaling, FollowsYarnsFormula) {
  EXPECT_EQ(attention_scaling({}), 1.0f);
  EXPECT_EQ(attention_scaling(llama31()), 1.0f);
  RopeConfig yarn{.type = RopeType::kYarn, .factor = 4, .original_max_position_embeddings = 64};
  EXPECT_FLOAT_EQ(attention_scaling(yarn), 1.138629436f);
  yarn.factor = 40;
  yarn.mscale = 1.0;
  EXPECT_FLOAT_EQ(attention_scaling(yarn), 1.368887945f) << "mscale without mscale_all_dim has no effect";
  yarn.mscale_all_dim = 0.5;
  EXPECT_FLOAT_EQ(attention_scaling(yarn), 1.155721990f);
  yarn.mscale = 0.5;
  EXPECT_EQ(attention_scaling(yarn), 1.0f);
  yarn.attention_factor = 1.25;
  EXPECT_EQ(attention_scaling(yarn), 1.25f);
  EXPECT_EQ(attention_scaling({.type = RopeType::kYarn, .factor = 1}), 1.0f);
}

Result<RopeConfig> read_rope(const char* text) {
  const Result<Json> json = Json::parse(text, "test");
  EXPECT_TRUE(json.ok()) << json.status().message();
  return read_rope_config(*json, "c.json", {.max_position_embeddings = 2048, .head_dim = 16});
}

TEST(RopeConfig, ReadsOldAndNewSpellingAlike) {
  const RopeConfig none = *read_rope("{}");
  EXPECT_EQ(none, RopeConfig{});
  EXPECT_EQ(*read_rope(R"({"rope_theta": 10000, "rope_scaling": null, "rope_parameters": null})"), none);
  EXPECT_EQ(*read_rope(R"({"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}})"), none);
  EXPECT_EQ(*read_rope(R"({"partial_rotary_factor": 1.0})"), none);

  const RopeConfig llama3 =
      *read_rope(R"({"rope_theta": 500000.0, "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0,
      "high_freq_factor": 4.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"}})");
  EXPECT_EQ(llama3, llama31());
  EXPECT_EQ(*read_rope(R"({"rope_parameters": {"rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
      "high_freq_factor": 4.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"}})"),
            llama3);

  const RopeConfig linear = *read_rope(R"({"rope_scaling": {"type": "linear", "factor": 2}})");
  EXPECT_EQ(linear.type, RopeType::kLinear);
  EXPECT_EQ(linear.factor, 2.0);
}

TEST(RopeConfig, ReadsProportional) {
  const RopeConfig rope = *read_rope(
      R"({"rope_parameters": {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.25}})");
  EXPECT_EQ(rope, (RopeConfig{.type = RopeType::kProportional, .theta = 1e6, .partial_rotary_factor = 0.25}));
  EXPECT_EQ(read_rope(R"({"rope_parameters": {"rope_type": "proportional", "factor": 8}})")->factor, 8);
}

TEST(RopeConfig, FillsInYarnAsTransformersDoes) {
  const RopeConfig plain = *read_rope(R"({"rope_scaling": {"type": "yarn", "factor": 4.0}})");
  EXPECT_EQ(plain.original_max_position_embeddings, 2048) << "max_position_embeddings";
  EXPECT_EQ(plain.beta_fast, 32.0);
  EXPECT_EQ(plain.beta_slow, 1.0);
  EXPECT_TRUE(plain.truncate);
  EXPECT_FALSE(plain.attention_factor || plain.mscale || plain.mscale_all_dim);
  EXPECT_EQ(read_rope(R"({"rope_scaling": {"type": "yarn", "factor": null, "original_max_position_embeddings": 512}})")
                ->factor,
            4.0)
      << "the quotient of the contexts";
  EXPECT_EQ(read_rope(R"({"original_max_position_embeddings": 256,
                     "rope_scaling": {"type": "yarn", "factor": 2, "original_max_position_embeddings": 512}})")
                ->original_max_position_embeddings,
            256);
  const RopeConfig full = *read_rope(R"({"rope_parameters": {"rope_type": "yarn", "rope_theta": 150000, "factor": 32.0,
      "beta_fast": 16, "beta_slow": 2, "truncate": false, "attention_factor": 1.5, "mscale": 1.0, "mscale_all_dim": 0.5}})");
  EXPECT_EQ(full.theta, 150000.0);
  EXPECT_EQ(full.beta_fast, 16.0);
  EXPECT_EQ(full.beta_slow, 2.0);
  EXPECT_FALSE(full.truncate);
  EXPECT_EQ(full.attention_factor, 1.5);
  EXPECT_EQ(full.mscale, 1.0);
  EXPECT_EQ(full.mscale_all_dim, 0.5);
}

TEST(RopeConfig, FillsInLongRopeAsTransformersDoes) {
  const std::string lists = R"("short_factor": [1, 1, 1, 1, 1, 1, 1, 1.5], "long_factor": [1, 2, 3, 4, 5, 6, 7, 8])";
  const auto with = [&](const char* before, const char* inside) {
    return *read_rope(("{" + std::string(before) + R"("rope_scaling": {)" + inside + lists + "}}").c_str());
  };
  const RopeConfig phi = with(R"("original_max_position_embeddings": 512, )", R"("type": "su", )");
  EXPECT_EQ(phi.type, RopeType::kLongRope);
  EXPECT_EQ(phi.short_factor.back(), 1.5);
  EXPECT_EQ(phi.long_factor.back(), 8.0);
  EXPECT_EQ(phi.factor, 4.0) << "the quotient of the contexts";
  EXPECT_EQ(with("", R"("rope_type": "longrope", "factor": 32, )").factor, 32.0);
  EXPECT_EQ(with("", R"("rope_type": "longrope", )").factor, 1.0);
  EXPECT_EQ(with("", R"("rope_type": "longrope", "attention_factor": 1.5, )").attention_factor, 1.5);
}

TEST(RopeConfig, RefusesWithFileFieldAndValue) {
  struct Case {
    const char* text;
    StatusCode code;
    std::vector<std::string> parts;
  };
  const Case cases[] = {
      {R"({"rope_scaling": {"type": "dynamic", "factor": 2}})",
       StatusCode::kUnimplemented,
       {"rope_scaling.type", "\"dynamic\"", "yarn"}},
      {R"({"rope_scaling": {"rope_type": "longrope"}})",
       StatusCode::kInvalidArgument,
       {"rope_scaling.short_factor", "missing", "8 numbers"}},
      {R"({"rope_scaling": {"rope_type": "longrope", "short_factor": [1, 1, 1, 1, 1, 1, 1, 1], "long_factor": [1]}})",
       StatusCode::kInvalidArgument,
       {"rope_scaling.long_factor", "[1]", "8 numbers"}},
      {R"({"rope_scaling": {"rope_type": "longrope", "short_factor": [1, 1, 1, 1, 1, 1, 1, 0]}})",
       StatusCode::kInvalidArgument,
       {"rope_scaling.short_factor", "8 numbers"}},
      {R"({"original_max_position_embeddings": 1, "rope_scaling": {"rope_type": "longrope"}})",
       StatusCode::kInvalidArgument,
       {"original_max_position_embeddings", "is 1"}},
      {R"({"rope_scaling": {"rope_type": "yarn", "factor": 2, "long_factor": [1]}})",
       StatusCode::kUnimplemented,
       {"rope_scaling.long_factor", "longrope"}},
      {R"({"rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}})",
       StatusCode::kUnimplemented,
       {"\"mrope\""}},
      {R"({"rope_parameters": {"rope_type": "default", "mrope_section": [8]}})",
       StatusCode::kInvalidArgument,
       {"rope_parameters.mrope_section", "[8]"}},
      {R"({"rope_parameters": {"rope_type": "default", "mrope_section": [2, 2, 2]}})",
       StatusCode::kInvalidArgument,
       {"rope_parameters.mrope_section", "8 rotated pairs"}},
      {R"({"partial_rotary_factor": 0.5})", StatusCode::kUnimplemented, {"\"partial_rotary_factor\" is 0.5"}},
      {R"({"rope_parameters": {"full_attention": {"rope_theta": 1e6}}})",
       StatusCode::kUnimplemented,
       {"rope_parameters.full_attention"}},
      {R"({"rope_theta": 0})", StatusCode::kInvalidArgument, {"\"rope_theta\" is 0"}},
      {R"({"rope_theta": -10000})", StatusCode::kInvalidArgument, {"\"rope_theta\" is -10000"}},
      {R"({"rope_theta": "10000"})", StatusCode::kInvalidArgument, {"\"rope_theta\" is \"10000\"", "number"}},
      {R"({"rope_scaling": 4})", StatusCode::kInvalidArgument, {"\"rope_scaling\" is 4"}},
      {R"({"rope_scaling": {"type": 4}})", StatusCode::kInvalidArgument, {"rope_scaling.type", "is 4"}},
      {R"({"rope_scaling": {"type": "linear"}})", StatusCode::kInvalidArgument, {"rope_scaling.factor", "missing"}},
      {R"({"rope_scaling": {"type": "linear", "factor": 0}})",
       StatusCode::kInvalidArgument,
       {"rope_scaling.factor", "is 0"}},
      {R"({"rope_scaling": {"type": "llama3", "factor": 8}})",
       StatusCode::kInvalidArgument,
       {"rope_scaling.low_freq_factor", "missing"}},
      {R"({"rope_scaling": {"type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4}})",
       StatusCode::kInvalidArgument,
       {"rope_scaling.high_freq_factor", "is 4"}},
      {R"({"rope_scaling": {"type": "yarn", "factor": 8, "beta_fast": 1, "beta_slow": 2}})",
       StatusCode::kInvalidArgument,
       {"rope_scaling.beta_fast", "is 1"}},
      {R"({"rope_scaling": {"type": "yarn", "factor": 8, "original_max_position_embeddings": 0}})",
       StatusCode::kInvalidArgument,
       {"rope_scaling.original_max_position_embeddings", "is 0"}},
      {R"({"rope_scaling": {"type": "yarn", "factor": 8}, "rope_parameters": {"rope_type": "default"}})",
       StatusCode::kInvalidArgument,
       {"rope_scaling", "rope_parameters"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.text);
    std::vector<std::string> parts = c.parts;
    parts.push_back("c.json");
    expect_error(read_rope(c.text), c.code, parts);
  }
}

}  // namespace
}  // namespace tessera
