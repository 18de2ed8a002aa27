// The dot product of the adapters' CPU kernels.
#pragma once

#include <cstdint>

namespace tessera {

// Returns Σ x · w over n elements. The order of the additions depends on n alone. T is float, BFloat16 or Float16.
template <class T>
float adapter_dot(const T* x, const T* w, std::int64_t n);

}  // namespace tessera
