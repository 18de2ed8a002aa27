// Converts a quantised matrix to 16-bit numbers in scratch memory, for products of many rows. The conversion takes a
// small part of a product's time. Memory bandwidth limits the conversion.
#pragma once

#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/quantised/quantised_values.cuh"

namespace tessera::cuda::quantised {

inline constexpr int kDequantisedThreads = 256;
inline constexpr int kDequantisedColumns = 16;  // number of columns that a thread converts

// Computes each element of the matrix, rounded to T. A thread converts kDequantisedColumns columns of a row. These
// columns share a scale. Preconditions: the number of columns is a multiple of 16, and groups begin at multiples of 16
// columns.
template <class T, Values kValues>
__global__ void __launch_bounds__(kDequantisedThreads) dequantise(const QuantisedMatrix w, T* to) {
  let_next_begin();
  wait_for_previous();
  const auto parts = static_cast<unsigned>(w.cols / kDequantisedColumns);
  const auto at = static_cast<std::int64_t>(blockIdx.x) * kDequantisedThreads + threadIdx.x;
  if (at >= w.rows * parts) return;
  const std::int64_t row = at / parts;
  const std::int64_t column = (at - row * parts) * kDequantisedColumns;
  const std::int64_t scale_index = scale_at(w, row, column);
  const float scale = scale_of(w, scale_index) * (w.factor != nullptr ? w.factor[row] : 1.0F);
  const float offset = offset_at(w, scale_index);
  float values[kDequantisedColumns];
  if constexpr (is_packed(kValues)) {
    const auto words = *reinterpret_cast<const uint2*>(w.values + (row * w.cols + column) / 2);
    const int zero = zero_at(w, row, column);
#pragma unroll
    for (int i = 0; i < kDequantisedColumns; ++i) {
      const unsigned code = (i < 8 ? words.x : words.y) >> (i % 8 * 4) & 15u;
      values[i] = kValues == Values::kE2M1 ? number_of_e2m1(code) : static_cast<float>(static_cast<int>(code) - zero);
    }
  } else {
    const uint4 four = *reinterpret_cast<const uint4*>(w.values + row * w.cols + column);
    const auto* const bytes = reinterpret_cast<const std::uint8_t*>(&four);
#pragma unroll
    for (int i = 0; i < kDequantisedColumns; ++i)
      values[i] =
          kValues == Values::kE4M3 ? number_of_e4m3(bytes[i]) : static_cast<float>(static_cast<std::int8_t>(bytes[i]));
  }
  Pack<T, 8> packs[2];
#pragma unroll
  for (int i = 0; i < kDequantisedColumns; ++i) packs[i / 8].at[i % 8] = from_float<T>(values[i] * scale + offset);
  auto* const out = reinterpret_cast<Pack<T, 8>*>(to + row * w.cols + column);
  out[0] = packs[0];
  out[1] = packs[1];
}

}  // namespace tessera::cuda::quantised
