// Turns a classifier's logit into a score from 0 to 1 by the sigmoid function.
#pragma once

#include <cmath>

namespace tessera {

inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

}  // namespace tessera
