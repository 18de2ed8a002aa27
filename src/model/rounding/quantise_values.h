// Rounds numbers to small values with scales, for matrices that are quantised while they are read. All arithmetic is
// float32. Each number is divided once, and the quotient is rounded to the nearest value, ties to even. Numbers must be
// finite. Each type of values has its own rule for scales:
//
//   e4m3  scale = greatest magnitude of the block / 448
//   int8  scale = greatest magnitude / 127; values -127 … 127
//   int4  scale = greatest magnitude / 7; values 0 … 15, where 8 stands for zero
//   e2m1  factor of the matrix = greatest magnitude / (448 · 6); scale of a block = its greatest magnitude / 6 /
//         factor, rounded to E4M3 and at least 2^-9; each number is divided by the product scale · factor
//
// A scale or factor that would be 0 becomes 1. This changes nothing, because all numbers of the block or matrix are
// zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tessera/ops/quantised/quantised_matrix.h"

namespace tessera {

struct Rounding {
  using Values = QuantisedFormat::Values;

  Values values = Values::kE4M3;
  std::int64_t block_rows = 1;  // size of a block with one scale; blocks at the edges may be smaller
  std::int64_t block_cols = 1;

  // Returns the number of values in a byte. If there are two, the first is in the lower half.
  std::int64_t values_of_byte() const { return values == Values::kInt4 || values == Values::kE2M1 ? 2 : 1; }
  // Returns whether scales are E4M3 and are multiplied by a factor of the matrix. If not, scales are float32 and the
  // factor is 1.
  bool has_factor() const { return values == Values::kE2M1; }
  friend bool operator==(const Rounding&, const Rounding&) = default;
};

// The bits of a float32 number without its sign bit form an integer that grows with the number's magnitude. The number
// is infinite or NaN if this integer is at least kInfiniteBits.
inline constexpr std::uint32_t kInfiniteBits = 0x7f800000u;

// Sets greatest[i] to the bits of the magnitude of x[i] if these bits are greater than greatest[i]. Precondition: both
// arrays have the same length.
void raise_to_magnitudes(std::span<const float> x, std::span<std::uint32_t> greatest);
// A block has `block` columns, so bits[i] belongs to the block with index (first + i) / block. Raises this block's
// element of `of_blocks` to bits[i] if bits[i] is greater. Preconditions: 0 <= first < block, and `of_blocks` has an
// element for each of these blocks.
void raise_to_columns(std::span<const std::uint32_t> bits, std::int64_t first, std::int64_t block,
                      std::span<std::uint32_t> of_blocks);

// Returns the factor of a matrix whose greatest magnitude is `greatest`. Returns 1 for types without a factor.
float matrix_factor(Rounding::Values values, float greatest);
// Sets scales[i] to the scale of block i as a float32 number, even if scales are stored as E4M3. greatest[i] contains
// the bits of the block's greatest magnitude. Precondition: both arrays have the same length.
void block_scales(Rounding::Values values, std::span<const std::uint32_t> greatest, float factor,
                  std::span<float> scales);

// Sets divisors[i] to scales[(first + i) / block] · factor, where `block` is the number of columns in a block.
// Preconditions are those of raise_to_columns().
void spread_scales(std::span<const float> scales, float factor, std::int64_t first, std::int64_t block,
                   std::span<float> divisors);
// Sets to[i] to the stored value for x[i] / divisors[i]. Precondition: all arrays have the same length.
void round_values(Rounding::Values values, std::span<const float> x, std::span<const float> divisors,
                  std::span<std::uint8_t> to);
// Packs pairs of 4-bit values into bytes. Precondition: `values` is twice as long as `to`.
void pack_pairs(std::span<const std::uint8_t> values, std::span<std::byte> to);

}  // namespace tessera
