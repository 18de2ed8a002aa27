// Two classes with which a kernel stores rows of n values: Numbers stores values of the storage type, and Rounded
// stores rounded rows (rounded_rows.cuh).
#pragma once

#include <cstdint>

#include "tessera/ops/cuda/rounded_rows.cuh"

namespace tessera::cuda {

template <class T>
struct Numbers {
  T* y;  // [rows, n]
  std::int64_t n;
  template <int N>
  __device__ void store(std::int64_t row, std::int64_t column, const Pack<T, N>& values) const {
    store_pack(y + row * n + column, values);
  }
};

template <class T>
struct Rounded {
  RoundedRows y;
  std::int64_t n;
  __device__ void store(std::int64_t row, std::int64_t column, const Pack<T, 8>& values) const {
    store_rounded(y, row, column, n, values);
  }
};

}  // namespace tessera::cuda
