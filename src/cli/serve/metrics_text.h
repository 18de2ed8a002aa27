// Reads histograms from a saved /metrics response (Prometheus' text format).
#pragma once

#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"

namespace tessera::cli {

// The number of observations between the previous bucket's limit (exclusive) and `limit` (inclusive).
struct HistogramBucket {
  double limit = 0;  // infinity for the last bucket
  double count = 0;
};

// Returns the buckets of the histogram `name` in ascending order. Series with different labels are added up. Errors
// name `file` and the line. Returns kNotFound if there is no such histogram.
Result<std::vector<HistogramBucket>> read_histogram(std::string_view text, std::string_view name,
                                                    std::string_view file);

}  // namespace tessera::cli
