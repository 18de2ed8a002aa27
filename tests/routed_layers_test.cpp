// Catches: a mixture of experts computed wrongly in bfloat16. Whole forwards cannot show this: if two experts have
// nearly equal scores, rounding may choose the other expert, and then all later layers differ. So each layer is
// computed from the inputs and experts of the float32 forward.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "golden_cases.h"
#include "taught_layers.h"

namespace tessera {
namespace {

using testing::Golden;
using testing::Lesson;
using testing::TaughtModel;

// Returns the residual stream after each layer, by the name of the layer. A layer passes on the output of its last
// branch separately, because the norm of the next layer adds that output. The residual stream is therefore the sum of
// the values that the layer passes on. A value that belongs to no layer is returned under its own name.
std::map<std::string, std::vector<float>> by_layer(const Lesson& lesson) {
  std::map<std::string, std::vector<float>> sums;
  for (const auto& [name, values] : lesson.values) {
    const std::string layer = testing::layer_of(name);
    std::vector<float>& sum = sums[layer.empty() ? name : layer];
    sum.resize(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) sum[i] += values[i];
  }
  return sums;
}

// The sums ‖a − b‖² and ‖b‖² over the rows seen so far.
struct Difference {
  double difference2 = 0;
  double norm2 = 0;
  void add(const std::vector<float>& got, const std::vector<float>& want) {
    for (std::size_t i = 0; i < want.size(); ++i) {
      const double d = static_cast<double>(got.at(i)) - static_cast<double>(want[i]);
      difference2 += d * d;
      norm2 += static_cast<double>(want[i]) * static_cast<double>(want[i]);
    }
  }
  double relative() const { return std::isnan(difference2) ? INFINITY : std::sqrt(difference2 / norm2); }
};

// Counts the rows for which the routers of two forwards chose the same experts, in any order.
struct Alike {
  std::int64_t rows = 0;
  std::int64_t alike = 0;
  void add(const Lesson& a, const Lesson& b) {
    for (const auto& [router, ids] : a.ids) {
      const std::vector<std::int32_t>& others = b.ids.at(router);
      const auto k = static_cast<std::ptrdiff_t>(a.experts_per_token);
      for (std::ptrdiff_t row = 0; row < std::ssize(ids); row += k, ++rows)
        alike += std::is_permutation(ids.begin() + row, ids.begin() + row + k, others.begin() + row) ? 1 : 0;
    }
  }
  double share() const { return static_cast<double>(alike) / static_cast<double>(rows); }
};

class RoutedLayers : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (const std::string absent = testing::absent_golden(GetParam()); !absent.empty()) GTEST_SKIP() << absent;
  }
};

TEST_P(RoutedLayers, InBfloat16EqualThoseInFloat32) {
  const Golden golden = testing::read_golden(GetParam());
  const auto exact = TaughtModel::create(golden.folder, ir::DType::kFloat32);
  ASSERT_TRUE(exact.ok()) << exact.status().to_string();
  const auto rounded = TaughtModel::create(golden.folder, ir::DType::kBFloat16);
  ASSERT_TRUE(rounded.ok()) << rounded.status().to_string();
  std::map<std::string, Difference> layers;
  Alike given_rows;  // bfloat16's routers on the float32 forward's rows
  Alike own_rows;    // bfloat16's routers on their own rows
  for (const std::vector<TokenId>& prompt : golden.prompts) {
    const Result<Lesson> want = (*exact)->run(prompt, nullptr);
    ASSERT_TRUE(want.ok()) << want.status().to_string();
    ASSERT_FALSE(want->ids.empty()) << "it has no router";
    EXPECT_EQ((*exact)->run(prompt, &*want)->values, want->values) << "a forward that is given its own values";
    const Result<Lesson> got = (*rounded)->run(prompt, &*want);
    ASSERT_TRUE(got.ok()) << got.status().to_string();
    const std::map<std::string, std::vector<float>> made = by_layer(*got);
    for (const auto& [name, values] : by_layer(*want)) layers[name].add(made.at(name), values);
    given_rows.add(*want, *got);
    own_rows.add(*want, *(*rounded)->run(prompt, nullptr));
  }
  double worst = 0;
  for (const auto& [name, difference] : layers) {
    std::printf("%s %s: relative difference %.2e\n", GetParam(), name.c_str(), difference.relative());
    EXPECT_LE(difference.relative(), 2e-2) << name;
    worst = std::max(worst, difference.relative());
  }
  std::printf(
      "%s: greatest relative difference of a layer %.2e; rows routed alike: %.2f %% from float32's layers, "
      "%.2f %% from its own\n",
      GetParam(), worst, 100 * given_rows.share(), 100 * own_rows.share());
  EXPECT_GE(given_rows.share(), 0.9);
}

INSTANTIATE_TEST_SUITE_P(Experts, RoutedLayers, ::testing::ValuesIn(testing::kMixtureGoldens), testing::case_name);
INSTANTIATE_TEST_SUITE_P(Latent, RoutedLayers, ::testing::ValuesIn(testing::kLatentGoldens), testing::case_name);
INSTANTIATE_TEST_SUITE_P(RecurrentExperts, RoutedLayers, ::testing::ValuesIn(testing::kRecurrentMixtureGoldens),
                         testing::case_name);
INSTANTIATE_TEST_SUITE_P(LargerExperts, RoutedLayers, ::testing::ValuesIn(testing::kLargerMixtureGoldens),
                         testing::case_name);

}  // namespace
}  // namespace tessera
