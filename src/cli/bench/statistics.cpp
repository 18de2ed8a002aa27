#include "tessera/cli/bench/statistics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace tessera::cli {
namespace {

// The 97.5 % quantiles of Student's t for 1, 2, … degrees of freedom.
constexpr std::array kStudent = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
                                 2.201,  2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
                                 2.080,  2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042};

// Returns the quantile for any number of degrees of freedom. Above 30 it uses the Cornish-Fisher expansion around the
// normal distribution, with an error below 0.004.
double student(std::size_t degrees) {
  if (degrees <= kStudent.size()) return kStudent[degrees - 1];
  constexpr double kNormal = 1.959964;
  return kNormal + (kNormal * kNormal * kNormal + kNormal) / (4 * static_cast<double>(degrees));
}

// Returns which of n sorted values is the lower end of the median's interval. This is the largest k such that the k-th
// smallest value exceeds the median with a probability of at most 2.5 %. Returns 0 if n is too small for such a k.
std::size_t outside(std::size_t n) {
  double lost = 0;
  // Logarithm of the probability that exactly k values are below the median.
  double logarithm = -static_cast<double>(n) * std::log(2.0);
  for (std::size_t k = 0; k < n; ++k) {
    lost += std::exp(logarithm);
    if (lost > 0.025) return k;
    logarithm += std::log(static_cast<double>(n - k)) - std::log(static_cast<double>(k + 1));
  }
  return 0;
}

}  // namespace

double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

Interval median_interval(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t left_out = outside(values.size());
  const std::size_t low = left_out == 0 ? 0 : left_out - 1;
  return {values[low], values[values.size() - 1 - low]};
}

double mean(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

Interval mean_interval(std::span<const double> values) {
  const double middle = mean(values);
  double squares = 0;
  for (const double value : values) squares += (value - middle) * (value - middle);
  const auto n = static_cast<double>(values.size());
  const double half = student(values.size() - 1) * std::sqrt(squares / (n - 1) / n);
  return {middle - half, middle + half};
}

}  // namespace tessera::cli
