// Rounds numbers to small values with scales, for matrices that are quantised while they are read. All arithmetic is
// float32: one division for each value, whose result is rounded to the nearest value, ties to even. Numbers must be
// finite.
//
//   e4m3  scale = greatest magnitude of the block / 448
//   int8  scale = greatest magnitude / 127; values -127 … 127
//   int4  scale = greatest magnitude / 7; values 0 … 15, of which 8 is zero
//   e2m1  factor of the matrix = greatest magnitude / (448 · 6); scale of a block = its greatest magnitude / 6 /
//         factor, rounded to E4M3 and at least 2^-9; a value is divided by scale · factor
//
// A scale or factor that would be 0 is 1: then every value of its block is zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tessera/ops/quantised/quantised_matrix.h"

namespace tessera {

struct Rounding {
  using Values = QuantisedFormat::Values;

  Values values = Values::kE4M3;
  std::int64_t block_rows = 1;  // rows and columns that share a scale; blocks at the edges may be smaller
  std::int64_t block_cols = 1;

  // Returns the number of values in a byte, the first in the lower half.
  std::int64_t values_of_byte() const { return values == Values::kInt4 || values == Values::kE2M1 ? 2 : 1; }
  // Returns whether scales are E4M3 under a factor of the matrix. Otherwise they are float32, and the factor is 1.
  bool has_factor() const { return values == Values::kE2M1; }
  friend bool operator==(const Rounding&, const Rounding&) = default;
};

// Without the sign, the bits of float32 numbers have the order of their magnitudes. From these bits on a number is
// infinite or NaN.
inline constexpr std::uint32_t kInfiniteBits = 0x7f800000u;

// Raises greatest[i] to the bits of the magnitude of x[i]. Precondition: both are equally long.
void raise_to_magnitudes(std::span<const float> x, std::span<std::uint32_t> greatest);
// Raises of_blocks[(first + i) / block] to bits[i]. Precondition: 0 <= first < block, and all these blocks are there.
void raise_to_columns(std::span<const std::uint32_t> bits, std::int64_t first, std::int64_t block,
                      std::span<std::uint32_t> of_blocks);

float matrix_factor(Rounding::Values values, float greatest);
// Writes each block's scale as a number, even if it is stored as E4M3; greatest[i] holds the bits of a magnitude.
// Precondition: both are equally long.
void block_scales(Rounding::Values values, std::span<const std::uint32_t> greatest, float factor,
                  std::span<float> scales);

// Sets divisors[i] to scales[(first + i) / block] · factor. Precondition: as above.
void spread_scales(std::span<const float> scales, float factor, std::int64_t first, std::int64_t block,
                   std::span<float> divisors);
// Writes the stored value of each x[i] / divisors[i], one in each byte. Precondition: all are equally long.
void round_values(Rounding::Values values, std::span<const float> x, std::span<const float> divisors,
                  std::span<std::uint8_t> to);
// Joins pairs of values of four bits. Precondition: `values` is twice as long as `to`.
void pack_pairs(std::span<const std::uint8_t> values, std::span<std::byte> to);

}  // namespace tessera
