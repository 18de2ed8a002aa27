// What repeated measurements come to: medians and means, with intervals that hold them with 95 % confidence.
#pragma once

#include <span>
#include <vector>

namespace tessera::cli {

struct Interval {
  double low = 0;
  double high = 0;
  bool holds(double value) const { return low <= value && value <= high; }
};

// The middle value, of an even number the larger of the two. Precondition: not empty.
double median(std::vector<double> values);

// The interval in which the median of the sampled distribution lies with at least 95 % probability: two order
// statistics of the values. The number of values below the median is binomial, whatever the distribution. With fewer
// than six values the interval is from the smallest to the largest, and its probability is 1 - 2^(1 - n). Precondition:
// not empty.
Interval median_interval(std::vector<double> values);

double mean(std::span<const double> values);  // precondition: not empty

// The interval in which the mean of the sampled distribution lies, by Student's t. Precondition: two values or more.
Interval mean_interval(std::span<const double> values);

}  // namespace tessera::cli
