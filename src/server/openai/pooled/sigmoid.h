// The sigmoid, which makes a score from 0 to 1 of a classifier's logit.
#pragma once

#include <cmath>

namespace tessera {

inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

}  // namespace tessera
