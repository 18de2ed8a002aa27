#include "tessera/runner/host_floats.h"

#include <cstring>

#include "tessera/ops/cpu/cpu_math.h"

namespace tessera {

Status narrow_floats(std::span<const float> from, ir::DType dtype, std::byte* to) {
  return dispatch_dtype(dtype, "a batch's embeddings", [&]<class T>() -> Status {
#pragma omp simd
    for (std::size_t i = 0; i < from.size(); ++i) {
      const T value = from_float<T>(from[i]);
      std::memcpy(to + i * sizeof(T), &value, sizeof(T));
    }
    return ok_status();
  });
}

Status widen_floats(const std::byte* from, ir::DType dtype, std::span<float> to) {
  return dispatch_dtype(dtype, "hidden states", [&]<class T>() -> Status {
#pragma omp simd
    for (std::size_t i = 0; i < to.size(); ++i) {
      T value;
      std::memcpy(&value, from + i * sizeof(T), sizeof(T));
      to[i] = to_float(value);
    }
    return ok_status();
  });
}

}  // namespace tessera
