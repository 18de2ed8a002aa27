// Statistics of repeated measurements: medians and means with 95 % confidence intervals.
#pragma once

#include <span>
#include <vector>

namespace tessera::cli {

struct Interval {
  double low = 0;
  double high = 0;
  bool holds(double value) const { return low <= value && value <= high; }
};

// Returns the middle value, or the larger of the two middle values. Precondition: `values` is not empty.
double median(std::vector<double> values);

// Returns an interval for the median of the sampled distribution, whatever the distribution is. With six or more
// values, the interval contains the median with at least 95 % probability. The binomial distribution of the number of
// values below the median says which two of the sorted values are the ends. With n < 6 values, the interval reaches
// from the smallest to the largest value, and contains the median with probability 1 - 2^(1 - n). Precondition:
// `values` is not empty.
Interval median_interval(std::vector<double> values);

double mean(std::span<const double> values);  // precondition: not empty

// Returns the 95 % interval of the sampled distribution's mean, by Student's t. Precondition: at least two values.
Interval mean_interval(std::span<const double> values);

}  // namespace tessera::cli
