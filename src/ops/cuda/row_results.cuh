// Classes with which a kernel stores rows of n values: Numbers stores values of the storage type, Rounded stores
// rounded rows (rounded_rows.cuh), and Fixed stores rows in fixed point (fixed_rows.cuh).
#pragma once

#include <cstdint>

#include "tessera/ops/cuda/converted_rows.cuh"

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

template <class T>
struct Fixed {
  FixedRows y;
  std::int64_t n;
  __device__ void store(std::int64_t row, std::int64_t column, const Pack<T, 8>& values) const {
    store_fixed(y, row, column, n, values);
  }
};

// Returns an object that stores converted rows to `rows`. `rows` is a RoundedRows or a FixedRows.
template <class T>
Rounded<T> results_in(const RoundedRows& rows, std::int64_t n) {
  return {.y = rows, .n = n};
}
template <class T>
Fixed<T> results_in(const FixedRows& rows, std::int64_t n) {
  return {.y = rows, .n = n};
}

}  // namespace tessera::cuda
