// Computes the log-probability of a token from a model's logits.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>

#include "tessera/base/strong_id.h"

namespace tessera::cli {

// Returns log(softmax(row))[id]. Sums in double. Precondition: id is an index of `row`.
inline double log_probability(std::span<const float> row, TokenId id) {
  const double most = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (const float logit : row) sum += std::exp(logit - most);
  return row[id.index()] - most - std::log(sum);
}

}  // namespace tessera::cli
