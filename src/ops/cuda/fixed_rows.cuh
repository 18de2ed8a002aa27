// Converts rows to 16-bit fixed point, for integer products with int4 matrices (quantised_fixed.cuh). Each group of 128
// columns of a row has its own scale. A number has a high byte h and a low byte l, both signed, and is h · 256 + l.
#pragma once

#include <cstdint>

#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/cuda/cuda_math.cuh"

namespace tessera::cuda {

inline constexpr int kFixedGroup = 128;  // number of columns in a group
// The group's largest magnitude is converted to this number. The high byte is signed, so 128 · 256 would not fit.
inline constexpr int kMostFixed = 127 * 256;

// The scale and the sum of one group of a row. A product reads them in addition to the group's numbers.
struct FixedGroup {
  float scale;  // 1/16 of the value of the fixed-point number 1, because the product's weights are 16 times too large
  int sum;      // the sum of the group's numbers
};

// Rows [m, k] in fixed point. The caller owns the memory and keeps it until the products that read it have ended.
// `values` is [m, 2, k]: the high bytes of a row come before its low bytes. In each group the bytes are in the order of
// place_in_group(). `groups` is [k / 128, stride], and `stride` is at least m. Entries of rows past the last are not
// written.
struct FixedRows {
  std::uint8_t* values;
  FixedGroup* groups;
  std::int64_t stride;
};

// Says where in its group of 128 columns the eight columns from `column` on are stored. `column` is a multiple of 8.
// Returns the byte offset, from the start of the group, of the four even columns of the eight. The four odd columns are
// stored 16 bytes after them.
//
// The int4 matrix w sets this order (quantised_fixed.cuh). A word of w holds eight neighbouring columns as int4 values,
// which are a thread's operands for one product over 32 columns. The lower halves of the word's bytes hold the even
// columns, and the product multiplies them at its first 16 positions of k. The upper halves hold the odd columns, and
// the product multiplies them at its other 16 positions.
__device__ inline int place_in_group(int column) { return column / 8 % 4 * 32 + column / 32 * 4; }

// Converts eight columns of a row of k columns and stores them. The sixteen threads of a group call it together. They
// are neighbouring lanes of a warp. k is a multiple of kFixedGroup. Columns past the end are not stored. If a group has
// a NaN or an infinity, all products of its row are NaN.
template <class T>
__device__ inline void store_fixed(const FixedRows& to, std::int64_t row, std::int64_t column, std::int64_t k,
                                   const Pack<T, 8>& pack) {
  if (column >= k) return;
  constexpr int kThreads = kFixedGroup / 8;
  constexpr float kLeast = 0x1p-100F;  // the least magnitude that sets a step, so that the step's inverse is finite
  const unsigned lane = (threadIdx.y * blockDim.x + threadIdx.x) % kWarp;
  const unsigned lanes = 0xffffu << lane / kThreads * kThreads;
  unsigned bits = 0;  // the bits of the largest magnitude; those of a NaN are larger than those of any number
#pragma unroll
  for (int i = 0; i < 8; ++i) bits = max(bits, __float_as_uint(fabsf(to_float(pack.at[i]))));
  const float largest = __uint_as_float(__reduce_max_sync(lanes, bits));
  const float step = (largest < kLeast ? kLeast : largest) / kMostFixed;
  const float inverse = 1.0F / step;
  int number[8];
  int sum = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    number[i] = __float2int_rn(to_float(pack.at[i]) * inverse);
    sum += number[i];
  }
  sum = __reduce_add_sync(lanes, sum);
  const std::int64_t group = column / kFixedGroup;
  std::uint8_t* const place =
      to.values + 2 * row * k + group * kFixedGroup + place_in_group(static_cast<int>(column % kFixedGroup));
#pragma unroll
  for (int odd = 0; odd < 2; ++odd) {
    const auto four_bytes = [&](int added, unsigned low, unsigned high) {
      return __byte_perm(__byte_perm(number[odd] + added, number[odd + 2] + added, low),
                         __byte_perm(number[odd + 4] + added, number[odd + 6] + added, low), high);
    };
    *reinterpret_cast<std::uint32_t*>(place + 16 * odd) = four_bytes(128, 0x51, 0x5410);  // the high bytes, rounded
    *reinterpret_cast<std::uint32_t*>(place + k + 16 * odd) = four_bytes(0, 0x40, 0x5410);
  }
  if (lane % kThreads == 0) to.groups[group * to.stride + row] = {.scale = step / 16, .sum = sum};
}

}  // namespace tessera::cuda
