// Histograms in a saved answer of /metrics (Prometheus' text format).
#pragma once

#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"

namespace tessera::cli {

// The number of observations up to `limit` and above the limit of the bucket before.
struct HistogramBucket {
  double limit = 0;  // infinity: of the last
  double count = 0;
};

// The buckets of the histogram `name` in ascending order, series of other labels added up. Errors name `file` and line;
// kNotFound where there is no such histogram.
Result<std::vector<HistogramBucket>> read_histogram(std::string_view text, std::string_view name,
                                                    std::string_view file);

}  // namespace tessera::cli
