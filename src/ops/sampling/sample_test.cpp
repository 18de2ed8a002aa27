// Catches: a distribution that is not the one requested (wrong order of temperature, top-k, top-p and min-p; a set of
// kept tokens that is one token too large or too small; a biased draw); draws that depend on the row's place, the batch
// or the number of threads; NaN or masked logits that are drawn; ties that the higher index wins instead of the lower
// one.
#include "tessera/ops/sampling/sample.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <set>

#include "tessera/ops/rows/row_test_util.h"
#include "tessera/ops/sampling/philox.h"

namespace tessera {
namespace {

using ir::DType;
using ::testing::HasSubstr;
using testing::HostTensor;
using testing::infer_error;
using testing::random_tensor;

using testing::kInf;

// These are the test vectors that Random123 publishes in its file kat_vectors.
TEST(Philox, MatchesThePublishedVectors) {
  using Words = std::array<std::uint32_t, 4>;
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32_10({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, SamplingBitsUseSeedChoiceAndPosition) {
  EXPECT_EQ(sampling_bits(0, 0, 0), 0x6627e8d5e169c58du);
  const std::set<std::uint64_t> bits{sampling_bits(1, 2, 3), sampling_bits(1, 3, 2), sampling_bits(2, 2, 3),
                                     sampling_bits(1LL << 32, 2, 3), sampling_bits(-1, 2, 3)};
  EXPECT_EQ(bits.size(), 5u);
}

std::vector<double> argmax(const HostTensor& x) {
  return testing::run_op(kArgmax, kArgmaxCpu, {x}).results[0].values();
}

TEST(Argmax, MatchesTheReferenceForAllSizes) {
  for (const std::int64_t n : {1, 2, 63, 64, 65, 4095, 4096, 4097, 8191, 151936}) {
    const HostTensor x = random_tensor(DType::kFloat32, {3, n}, static_cast<std::uint32_t>(n), -10, 10);
    std::vector<double> expected;
    const std::vector<double> v = x.values();
    for (std::int64_t r = 0; r < 3; ++r)
      expected.push_back(
          static_cast<double>(std::max_element(v.begin() + r * n, v.begin() + (r + 1) * n) - (v.begin() + r * n)));
    EXPECT_EQ(argmax(x), expected) << n;
  }
  EXPECT_EQ(argmax(random_tensor(DType::kFloat32, {0, 5}, 1)).size(), 0u);
}

TEST(Argmax, LowestIndexWinsAndNaNDoesNot) {
  const double nan = std::nan("");
  for (const std::int64_t n : {7, 100, 9000}) {
    HostTensor x = testing::filled_tensor(DType::kFloat32, {5, n}, -1);
    x.set(n - 1, 2), x.set(n - 2, 2);                                            // row 0: a tie
    x.set(n + n - 1, 3), x.set(n, nan);                                          // row 1: NaN first
    for (std::int64_t i = 0; i < n; ++i) x.set(2 * n + i, nan);                  // row 2: only NaN
    for (std::int64_t i = 0; i < n; ++i) x.set(3 * n + i, i < 3 ? nan : -kInf);  // row 3: NaN, then -inf
    x.set(4 * n + 5, kInf), x.set(4 * n + 6, kInf);                              // row 4: inf
    EXPECT_EQ(argmax(x), (std::vector<double>{static_cast<double>(n - 2), static_cast<double>(n - 1), 0, 3, 5})) << n;
  }
}

struct Draw {
  double temperature = 1;
  int top_k = 0;
  double top_p = 1;
  double min_p = 0;
  std::int64_t seed = 0;
  int choice = 0;
  int position = 0;
};

// Makes the operands. `logits` has one row for each draw, or a single row, which is copied for each draw.
std::vector<HostTensor> operands(HostTensor logits, const std::vector<Draw>& draws) {
  const std::int64_t rows = static_cast<std::int64_t>(draws.size());
  const std::vector<std::byte> row = logits.bytes;
  if (logits.dims[0] != rows) {
    logits.dims[0] = rows;
    logits.bytes.clear();
    for (std::int64_t r = 0; r < rows; ++r) logits.bytes.insert(logits.bytes.end(), row.begin(), row.end());
  }
  std::vector<HostTensor> out{std::move(logits)};
  for (const DType dtype :
       {DType::kFloat32, DType::kInt32, DType::kFloat32, DType::kFloat32, DType::kInt64, DType::kInt32, DType::kInt32})
    out.push_back(testing::poisoned_tensor(dtype, {rows}));
  for (std::int64_t r = 0; r < rows; ++r) {
    const Draw& d = draws[static_cast<std::size_t>(r)];
    out[1].set(r, d.temperature);
    out[2].set(r, d.top_k);
    out[3].set(r, d.top_p);
    out[4].set(r, d.min_p);
    out[5].set_raw(r, d.seed);
    out[6].set(r, d.choice);
    out[7].set(r, d.position);
  }
  return out;
}

std::vector<double> sample(const HostTensor& logits, const std::vector<Draw>& draws) {
  return testing::run_op(kSample, kSampleCpu, operands(logits, draws)).results[0].values();
}

struct Expected {
  int token = 0;
  bool sure = true;  // false if a rounding of the weights could change the token
};

// Draws a token as sample.h defines it, in double precision and with a full sort.
Expected reference(const std::vector<double>& logits, const Draw& d) {
  std::vector<int> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::erase_if(order, [&](int i) { return std::isnan(logits[static_cast<std::size_t>(i)]); });
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
  });
  if (!(d.temperature > 0)) return {order[0]};
  if (d.top_k > 0) order.resize(std::min(order.size(), static_cast<std::size_t>(d.top_k)));
  const double greatest = logits[static_cast<std::size_t>(order[0])];
  std::vector<double> sums;
  double sum = 0;
  for (const int i : order)
    sums.push_back(sum += std::exp((logits[static_cast<std::size_t>(i)] - greatest) / d.temperature));
  const auto near = [&](double a, double b) { return std::abs(a - b) < 1e-6 * sum; };
  bool sure = true;
  if (d.top_p < 1) {
    std::size_t last = 0;
    while (last + 1 < sums.size() && sums[last] < static_cast<double>(static_cast<float>(d.top_p)) * sum) ++last;
    for (std::size_t i = last > 0 ? last - 1 : 0; i <= last; ++i)
      sure = sure && !near(sums[i], static_cast<double>(static_cast<float>(d.top_p)) * sum);
    sums.resize(last + 1);
  }
  if (d.min_p > 0) {
    const double least = std::min(static_cast<double>(static_cast<float>(d.min_p)), 1.0);
    std::size_t kept = 0;
    for (; kept < sums.size(); ++kept) {
      const double weight = std::exp((logits[static_cast<std::size_t>(order[kept])] - greatest) / d.temperature);
      sure = sure && (weight == 1 || std::abs(weight - least) > 1e-6 * least);
      if (weight < least) break;
    }
    sums.resize(kept);
  }
  const double u = static_cast<double>(sampling_bits(d.seed, d.choice, d.position)) * 0x1p-64 * sums.back();
  const std::size_t at =
      std::min(sums.size() - 1, static_cast<std::size_t>(std::upper_bound(sums.begin(), sums.end(), u) - sums.begin()));
  for (std::size_t i = at > 0 ? at - 1 : 0; i + 1 < sums.size() && i <= at; ++i) sure = sure && !near(sums[i], u);
  return {order[at], sure};
}

// Checks that every draw gives the reference's token. Draws whose token depends on rounding are left out. They are
// frequent if every token has a probability of about 1e-5, but at most a quarter of the draws may be left out.
void check_draws(const HostTensor& logits, const std::vector<Draw>& draws, const std::string& what) {
  const std::vector<double> drawn = sample(logits, draws);
  const std::vector<double> all = logits.values();
  const std::size_t vocab = static_cast<std::size_t>(logits.dims[1]);
  std::size_t unsure = 0;
  for (std::size_t r = 0; r < draws.size(); ++r) {
    const std::size_t row = logits.dims[0] == 1 ? 0 : r * vocab;
    const Expected expected = reference(
        {all.begin() + static_cast<std::ptrdiff_t>(row), all.begin() + static_cast<std::ptrdiff_t>(row + vocab)},
        draws[r]);
    if (!expected.sure)
      ++unsure;
    else
      EXPECT_EQ(drawn[r], expected.token) << what << ", row " << r;
  }
  EXPECT_LE(unsure, draws.size() / 4) << what;
}

// Makes draws with many combinations of parameters.
std::vector<Draw> various_draws(int count, std::uint32_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Draw> draws;
  const double temperatures[] = {0, 0.3, 0.7, 1, 1.5, 100};
  const int top_ks[] = {0, 0, 1, 2, 20, 50, 1000000, -1};
  const double top_ps[] = {1, 1, 0.95, 0.5, 0.01, 0, 0.999};
  const double min_ps[] = {0, 0, 0, 0.05, 0.5, 1, 1e-4, -1, 2};
  for (int i = 0; i < count; ++i)
    draws.push_back({temperatures[random() % 6], top_ks[random() % 8], top_ps[random() % 7], min_ps[random() % 9],
                     static_cast<std::int64_t>(random()), static_cast<int>(random() % 5),
                     static_cast<int>(random() % 100000)});
  return draws;
}

// Makes normally distributed logits with the given standard deviation.
HostTensor normal_logits(std::int64_t rows, std::int64_t vocab, double deviation, std::uint32_t seed) {
  HostTensor x = testing::poisoned_tensor(DType::kFloat32, {rows, vocab});
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal(0, deviation);
  for (std::int64_t i = 0; i < x.size(); ++i) x.set(i, normal(generator));
  return x;
}

TEST(Sample, AgreesWithTheDefinition) {
  for (const std::int64_t vocab : {1, 2, 31, 1000, 50000})
    for (const double deviation : {0.5, 3.0, 10.0})
      check_draws(normal_logits(40, vocab, deviation, 7), various_draws(40, static_cast<std::uint32_t>(vocab)),
                  "vocabulary " + std::to_string(vocab) + ", deviation " + std::to_string(deviation));
}

// Most of the weight lies in many tokens far from the most probable one, so the search must go through many tokens.
TEST(Sample, AgreesWithTheDefinitionForHeavyTails) {
  HostTensor x = testing::filled_tensor(DType::kFloat32, {1, 60000}, -9);
  for (std::int64_t i = 0; i < x.size(); ++i) x.set(i, -9 - static_cast<double>(i * 7919 % 60000) * 1e-5);
  x.set(12345, 0);
  check_draws(x, various_draws(60, 3), "heavy tail");
  check_draws(testing::filled_tensor(DType::kFloat32, {1, 60000}, 1), various_draws(60, 4), "all logits equal");
}

TEST(Sample, NaNAndMaskedLogitsAreNeverDrawn) {
  HostTensor x = normal_logits(1, 3000, 2, 5);
  for (std::int64_t i = 0; i < 3000; i += 2) x.set(i, i % 4 == 0 ? -kInf : std::nan(""));
  check_draws(x, various_draws(200, 6), "masked");
  for (const double token : sample(x, various_draws(200, 8))) EXPECT_EQ(static_cast<int>(token) % 2, 1);
}

TEST(Sample, DegenerateRowsTakeTheArgmax) {
  HostTensor x = normal_logits(1, 100, 1, 1);
  const double best = argmax(x)[0];
  const double bad[] = {0, -1, std::nan(""), 1e-30, -kInf};
  for (const double temperature : bad) EXPECT_EQ(sample(x, {{.temperature = temperature}})[0], best) << temperature;
  x.set(70, kInf), x.set(80, kInf);
  EXPECT_EQ(sample(x, {{}})[0], 70);
  EXPECT_EQ(sample(testing::filled_tensor(DType::kFloat32, {1, 9}, std::nan("")), {{}})[0], 0);
  EXPECT_EQ(sample(testing::filled_tensor(DType::kFloat32, {1, 9}, -kInf), {{}})[0], 0);
  EXPECT_TRUE(sample(testing::poisoned_tensor(DType::kFloat32, {0, 9}), {}).empty());
}

// Makes 1e5 draws, in which the seed, the choice or the position counts up. Compares them with the distribution by
// Pearson's chi-squared statistic. The 20 tokens give 19 degrees of freedom. With these, the statistic of correct draws
// exceeds 43.8 in one of a thousand tests.
TEST(Sample, DrawsFollowTheDistribution) {
  constexpr int kDraws = 100000;
  const HostTensor logits = normal_logits(1, 20, 1, 2);
  std::vector<double> weights;
  for (const double x : logits.values()) weights.push_back(std::exp(x / 0.8));
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (const std::string counter : {"seed", "choice", "position"}) {
    std::vector<Draw> draws(kDraws, {.temperature = 0.8, .seed = 42});
    for (int i = 0; i < kDraws; ++i) {
      Draw& d = draws[static_cast<std::size_t>(i)];
      if (counter == "seed") d.seed = i;
      if (counter == "choice") d.choice = i;
      if (counter == "position") d.position = i;
    }
    std::vector<double> counts(20);
    for (const double token : sample(logits, draws)) counts[static_cast<std::size_t>(token)] += 1;
    double chi_square = 0;
    for (std::size_t i = 0; i < 20; ++i) {
      const double expected = weights[i] / total * kDraws;
      chi_square += (counts[i] - expected) * (counts[i] - expected) / expected;
    }
    std::printf("  chi-square over %s: %.1f\n", counter.c_str(), chi_square);
    EXPECT_LT(chi_square, 43.8) << counter;
    EXPECT_GT(chi_square, 4.0) << counter << ": closer to the distribution than chance";
  }
}

// Checks that exactly the tokens that the parameters keep can be drawn. If the last kept token ties with others, the
// lower id is kept.
TEST(Sample, DrawsExactlyTheTokensThatItsParametersKeep) {
  const HostTensor logits = testing::make_tensor(DType::kFloat32, {1, 6}, std::vector<double>{1, 3, 2, 3, 2, 0});
  const auto support = [&](int top_k, double top_p, double min_p = 0) {
    std::vector<Draw> draws(2000, {.temperature = 2, .top_k = top_k, .top_p = top_p, .min_p = min_p});
    for (int i = 0; i < 2000; ++i) draws[static_cast<std::size_t>(i)].position = i;
    const std::vector<double> tokens = sample(logits, draws);
    return std::set<double>(tokens.begin(), tokens.end());
  };
  EXPECT_EQ(support(1, 1), (std::set<double>{1}));
  EXPECT_EQ(support(3, 1), (std::set<double>{1, 2, 3}));
  EXPECT_EQ(support(6, 1).size(), 6u);
  EXPECT_EQ(support(0, 0.0), (std::set<double>{1}));
  // At temperature 2 the tokens 1, 3, 2, 4, 0 and 5 have the probabilities 0.267, 0.267, 0.162, 0.162, 0.098 and 0.060.
  EXPECT_EQ(support(0, 0.26), (std::set<double>{1}));
  EXPECT_EQ(support(0, 0.28), (std::set<double>{1, 3}));
  EXPECT_EQ(support(0, 0.54), (std::set<double>{1, 2, 3}));
  EXPECT_EQ(support(0, 0.80), (std::set<double>{1, 2, 3, 4}));
  // top_k = 3 keeps the tokens 1, 3 and 2. Token 2 has 0.233 of their probability, so top_p = 0.8 keeps it and
  // top_p = 0.75 does not.
  EXPECT_EQ(support(3, 0.80), (std::set<double>{1, 2, 3}));
  EXPECT_EQ(support(3, 0.75), (std::set<double>{1, 3}));
  // Relative to the most probable token, the tokens 1, 3, 2, 4, 0 and 5 have the probabilities 1, 1, 0.607, 0.607,
  // 0.368 and 0.223. min_p keeps both of two equal tokens, or neither.
  EXPECT_EQ(support(0, 1, 1), (std::set<double>{1, 3}));
  EXPECT_EQ(support(0, 1, 0.61), (std::set<double>{1, 3}));
  EXPECT_EQ(support(0, 1, 0.60), (std::set<double>{1, 2, 3, 4}));
  EXPECT_EQ(support(0, 1, 0.23), (std::set<double>{0, 1, 2, 3, 4}));
  EXPECT_EQ(support(0, 1, 0.22).size(), 6u);
  EXPECT_EQ(support(0, 1, 1e-30).size(), 6u) << "beyond reach";
  EXPECT_EQ(support(0, 1, 5), (std::set<double>{1, 3})) << "above 1 is 1";
  EXPECT_EQ(support(0, 1, std::nan("")).size(), 6u);
  // min_p removes more tokens after top_k and top_p, and never brings back a token that these have removed.
  EXPECT_EQ(support(3, 1, 0.3), (std::set<double>{1, 2, 3}));
  EXPECT_EQ(support(0, 0.28, 0.3), (std::set<double>{1, 3}));
  EXPECT_EQ(support(0, 0.80, 0.7), (std::set<double>{1, 3}));
}

TEST(Sample, DependsOnlyOnTheRow) {
  const std::vector<HostTensor> all = operands(normal_logits(37, 5000, 3, 9), various_draws(37, 10));
  const std::vector<double> drawn = testing::run_op(kSample, kSampleCpu, all).results[0].values();
  // Samples the rows in reverse order.
  std::vector<HostTensor> reversed = all;
  for (std::size_t i = 0; i < all.size(); ++i) {
    reversed[i].bytes.clear();
    for (std::int64_t r = 36; r >= 0; --r) {
      const std::vector<std::byte> row = testing::slice_rows(all[i], r, r + 1).bytes;
      reversed[i].bytes.insert(reversed[i].bytes.end(), row.begin(), row.end());
    }
  }
  std::vector<double> backwards = testing::run_op(kSample, kSampleCpu, reversed).results[0].values();
  std::reverse(backwards.begin(), backwards.end());
  EXPECT_EQ(drawn, backwards);
  // Samples every row alone.
  for (std::int64_t r = 0; r < 37; ++r) {
    std::vector<HostTensor> alone;
    for (const HostTensor& t : all) alone.push_back(testing::slice_rows(t, r, r + 1));
    EXPECT_EQ(testing::run_op(kSample, kSampleCpu, alone).results[0].at(0), drawn[static_cast<std::size_t>(r)]) << r;
  }
  testing::expect_rows_independent(kSample, kSampleCpu, all, {0, 1, 2, 3, 4, 5, 6, 7});
  testing::expect_rows_independent(kArgmax, kArgmaxCpu, {all[0]}, {0});
}

TEST(Sample, IsTheSameOnAnyNumberOfThreads) {
  if (testing::on_cuda()) GTEST_SKIP() << "a CUDA device's threads are not a choice";
  const std::vector<HostTensor> all = operands(normal_logits(37, 5000, 3, 9), various_draws(37, 10));
  const std::vector<double> drawn = testing::run_op(kSample, kSampleCpu, all).results[0].values();
  for (const int threads : {1, 2, 5}) {
    auto device = CpuDevice::create({.threads = threads});
    ASSERT_TRUE(device.ok()) << device.status().to_string();
    const ForwardContext context;
    auto run = testing::OpCase::create(**device, kSample, kSampleCpu, all, {}, context);
    ASSERT_TRUE(run.ok()) << run.status().to_string();
    ASSERT_TRUE((*run)->load(all).ok());
    ASSERT_TRUE((*run)->enqueue().ok());
    EXPECT_EQ((*run)->results().value()[0].values(), drawn) << threads << " threads";
  }
}

TEST(Sample, RefusesWhatTheKernelCannotTake) {
  const ir::Type logits{DType::kFloat32, {ir::Symbol::kRows, 1000}};
  const ir::Type f32{DType::kFloat32, {ir::Symbol::kRows}};
  const ir::Type i32{DType::kInt32, {ir::Symbol::kRows}};
  const ir::Type i64{DType::kInt64, {ir::Symbol::kRows}};
  EXPECT_EQ(testing::infer_types(kSample, {logits, f32, i32, f32, f32, i64, i32, i32}).value()[0].to_string(),
            "i32[R]");
  EXPECT_THAT(infer_error(kSample, {logits, i32, i32, f32, f32, i64, i32, i32}), HasSubstr("temperature is i32[R]"));
  EXPECT_THAT(infer_error(kSample, {logits, f32, i32, f32, i32, i64, i32, i32}), HasSubstr("min_p is i32[R]"));
  EXPECT_THAT(infer_error(kSample, {logits, f32, i32, f32, f32, i32, i32, i32}),
              HasSubstr("seed is i32[R]; it must be i64[R]"));
  EXPECT_THAT(infer_error(kSample, {{DType::kBFloat16, {4, 10}}, f32, i32, f32, f32, i64, i32, i32}),
              HasSubstr("logits is bf16"));
  EXPECT_THAT(infer_error(kSample, {{DType::kFloat32, {4, 1 << 22}}, f32, i32, f32, f32, i64, i32, i32}),
              HasSubstr("at most 2097152"));
  EXPECT_THAT(infer_error(kArgmax, {{DType::kFloat32, {4}}}), HasSubstr("must have 2 dimensions"));
  EXPECT_THAT(infer_error(kArgmax, {{DType::kFloat16, {4, 4}}}), HasSubstr("it must be f32[4, 4]"));
}

}  // namespace
}  // namespace tessera
