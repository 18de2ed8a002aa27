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

// Of the median of what the values are samples of, whatever its distribution: the two order statistics that it lies
// between with at least 95 % probability (a count of values below it is binomial). Of fewer than six values the
// smallest and the largest, between which it lies with 1 - 2^(1 - n). Precondition: not empty.
Interval median_interval(std::vector<double> values);

double mean(std::span<const double> values);  // precondition: not empty

// Of the mean of what the values are samples of, by Student's t distribution. Precondition: two values or more.
Interval mean_interval(std::span<const double> values);

}  // namespace tessera::cli
