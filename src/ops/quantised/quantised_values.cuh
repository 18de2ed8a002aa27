// Converts the small values of a quantised matrix (quantised_matrix.h) to pairs of bfloat16 or float16 in registers.
//
// Most conversions only move bits. Their result is the value times a power of two, or the value plus a constant:
//
//   e4m3  bfloat16: the bits become the lowest bits of the exponent and the highest bits of the mantissa, which gives
//         2^-120 times the value. float16: the hardware converts.
//   e2m1  the bits move in the same way, which gives 2^-126 times the value in bfloat16, and 2^-14 times in float16.
//   int4  the bits replace the lowest bits of the mantissa of 128 (bfloat16) or 1024 (float16), which adds the value.
//   int8  bfloat16: the value itself, computed as a difference. float16: the value plus 1152 (1024 + 128).
//
// Subnormal values become subnormal numbers, and every step is exact. From the result, exact() computes the value
// itself, and scaled() computes the value times a scale, rounded to the type. The result of scaled() is kSumGrow times
// too small, so that neither this result nor the scale leaves the range of the type. Sums of products with such results
// are multiplied by kSumGrow in float32. The code 0x7f of e4m3 is NaN in float16 and 480 in bfloat16.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "tessera/ops/cuda/cuda_float8.cuh"
#include "tessera/ops/cuda/cuda_math.cuh"
#include "tessera/ops/quantised/quantised_matrix.h"

namespace tessera::cuda::quantised {

using Values = QuantisedFormat::Values;
using Scales = QuantisedFormat::Scales;

template <class T>
inline constexpr bool kIsBf16 = std::is_same_v<T, __nv_bfloat16>;
inline constexpr bool is_packed(Values values) { return values == Values::kInt4 || values == Values::kE2M1; }
inline constexpr bool is_float(Values values) { return values == Values::kE4M3 || values == Values::kE2M1; }

// Two elements of T in a register, the first in the lower half.
template <class T>
using PairOf = std::conditional_t<kIsBf16<T>, __nv_bfloat162, __half2>;

template <class T>
__device__ inline std::uint32_t times(std::uint32_t a, std::uint32_t b) {
  const PairOf<T> product = __hmul2(reinterpret_cast<const PairOf<T>&>(a), reinterpret_cast<const PairOf<T>&>(b));
  return reinterpret_cast<const std::uint32_t&>(product);
}
template <class T>
__device__ inline std::uint32_t minus(std::uint32_t a, std::uint32_t b) {
  const PairOf<T> difference = __hsub2(reinterpret_cast<const PairOf<T>&>(a), reinterpret_cast<const PairOf<T>&>(b));
  return reinterpret_cast<const std::uint32_t&>(difference);
}
// Returns x, rounded to T, in both halves of a register.
template <class T>
__device__ inline std::uint32_t both_halves(float x) {
  return pack_two<T>(x, x);
}
// Returns a word with the bits of `a` where kMask has ones, and the bits of `b` elsewhere. The function is inline
// assembly, because the compiler would otherwise see which operand bits are zero, and emit two instructions instead of
// one.
template <std::uint32_t kMask>
__device__ inline std::uint32_t merge(std::uint32_t a, std::uint32_t b) {
  std::uint32_t merged;
  asm("lop3.b32 %0, %1, %2, %3, 0xe2;" : "=r"(merged) : "r"(a), "n"(kMask), "r"(b));
  return merged;
}

// Returns the number of values in 32 bits.
inline constexpr int values_of_word(Values values) { return is_packed(values) ? 8 : 4; }

// A converted e4m3 or e2m1 may be too small by a power of two. The product kScaleGrow · kSumGrow makes up for this
// power. value_scale() multiplies the scale by kScaleGrow. Sums of the results of scaled() must be multiplied by
// kSumGrow.
template <class T, Values kValues>
inline constexpr float kScaleGrow = kValues == Values::kE4M3&& kIsBf16<T>   ? 0x1p112F
                                    : kValues == Values::kE2M1&& kIsBf16<T> ? 0x1p118F
                                    : kValues == Values::kE2M1              ? 0x1p6F
                                                                            : 1.0F;
template <class T, Values kValues>
inline constexpr float kSumGrow = kValues == Values::kE2M1 || (kValues == Values::kE4M3 && kIsBf16<T>) ? 0x1p8F : 1.0F;

// The number that convert_nibbles() adds to an int4.
template <class T>
inline constexpr int kOffset = kIsBf16<T> ? 128 : 1024;

// Returns the number that exact() and scaled() subtract from a converted integer, in both halves of a register. `zero`
// is the zero point of an int4. An int8 has no zero point.
template <class T, Values kValues>
__device__ inline std::uint32_t offset_of(int zero) {
  if constexpr (kValues == Values::kInt8) return kIsBf16<T> ? 0u : 0x64806480u;  // 1024 + 128
  return (static_cast<std::uint32_t>(zero) | (kIsBf16<T> ? 0x4300u : 0x6400u)) * 0x00010001u;
}

// Converts a word of four bytes. pairs[i] gets the values 2 i and 2 i + 1.
template <class T, Values kValues>
__device__ inline void convert_bytes(std::uint32_t word, std::uint32_t (&pairs)[2]) {
  if constexpr (kValues == Values::kE4M3 && kIsBf16<T>) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const std::uint32_t spread = __byte_perm(word, 0, i == 0 ? 0x1404 : 0x3424);  // into the halves' upper bytes
      pairs[i] = (spread & 0x80008000u) | (spread >> 4 & 0x07F007F0u);
    }
  } else if constexpr (kValues == Values::kE4M3) {
#pragma unroll
    for (int i = 0; i < 2; ++i) pairs[i] = widen_two<T>(word >> (16 * i));
  } else if constexpr (kIsBf16<T>) {
    // A value is the difference of two bfloat16 numbers whose upper byte is 0x43. The lower byte of the first number
    // holds the value's lower seven bits, so this number is 128 plus these bits. The lower byte of the second number
    // holds only the value's highest bit, so this number is 256 if the bit is set, and 128 if not. The difference is
    // the value, because the highest bit has the weight -128.
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const std::uint32_t spread = __byte_perm(word, 0x43434343u, i == 0 ? 0x4140 : 0x4342);
      pairs[i] = minus<T>(spread & 0xFF7FFF7Fu, spread & 0xFF80FF80u);
    }
  } else {
    const std::uint32_t above = word ^ 0x80808080u;
    pairs[0] = __byte_perm(above, 0x64646464u, 0x4140);
    pairs[1] = __byte_perm(above, 0x64646464u, 0x4342);
  }
}

// Converts a word of four bytes to bfloat16. It takes fewer instructions than convert_bytes(), because it pairs the
// values differently: pairs[0] has values 0 and 2, and pairs[1] has values 1 and 3.
template <Values kValues>
__device__ inline void convert_bytes_apart(std::uint32_t word, std::uint32_t (&pairs)[2]) {
  static_assert(kValues == Values::kE4M3 || kValues == Values::kInt8);
  if constexpr (kValues == Values::kE4M3) {
    // `signs` has the signs of both pairs. Each merge keeps one pair's signs, and overwrites the other pair's signs
    // with bits of values.
    const std::uint32_t signs = word & 0x80808080u;
    pairs[0] = merge<0x07F007F0u>(word << 4, signs << 8);
    pairs[1] = merge<0x07F007F0u>(word >> 4, signs);
  } else {
    // Adds the lowest seven bits of each value to 128. Then subtracts 128, or 256 if the value's sign bit is set.
    constexpr std::uint32_t kBase = 0x43004300u;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const std::uint32_t bytes = word >> (8 * i);
      pairs[i] = minus<__nv_bfloat16>(merge<0x007F007Fu>(bytes, kBase), merge<0x00800080u>(bytes, kBase));
    }
  }
}

// Puts the bits of two e2m1 values where T has its sign, exponent and mantissa. Each 16-bit half of an argument holds
// the four bits of one value. These bits begin at bit 6 in `at_six`, and at bit 12 in `at_twelve`.
template <class T>
__device__ inline std::uint32_t place_e2m1(std::uint32_t at_six, std::uint32_t at_twelve) {
  if constexpr (kIsBf16<T>) return merge<0x01C001C0u>(at_six, at_twelve & 0x80008000u);
  return merge<0x0E000E00u>(at_six << 3, at_twelve & 0x80008000u);
}

// Converts a word of eight 4-bit values. pairs[i] gets the values i and i + 4.
template <class T, Values kValues>
__device__ inline void convert_nibbles(std::uint32_t word, std::uint32_t (&pairs)[4]) {
  if constexpr (kValues == Values::kInt4) {
    constexpr std::uint32_t kBase = kIsBf16<T> ? 0x43004300u : 0x64006400u;
#pragma unroll
    for (int i = 0; i < 4; ++i) pairs[i] = merge<0x000F000Fu>(word >> (4 * i), kBase);
  } else if constexpr (kIsBf16<T>) {
    // Signs are masked for two pairs at once. A merge keeps one pair's signs, and overwrites the other pair's signs
    // with bits of values. The masks are inline assembly, because the compiler would otherwise see which bits are zero,
    // and mask each sign separately. Most shifts are to the left. Left shifts run in parallel with logic instructions.
    std::uint32_t even;
    std::uint32_t odd;
    asm("and.b32 %0, %1, 0x08080808;" : "=r"(even) : "r"(word));
    asm("and.b32 %0, %1, 0x80808080;" : "=r"(odd) : "r"(word));
    pairs[0] = merge<0x01C001C0u>(word << 6, even << 12);
    pairs[1] = merge<0x01C001C0u>(word << 2, odd << 8);
    pairs[2] = merge<0x01C001C0u>(word >> 2, even << 4);
    pairs[3] = merge<0x01C001C0u>(word >> 6, odd);
  } else {
    pairs[0] = merge<0x0E000E00u>(word << 9, (word & 0x00080008u) << 12);
    pairs[1] = merge<0x0E000E00u>(word << 5, (word & 0x00800080u) << 8);
    pairs[2] = merge<0x0E000E00u>(word << 1, (word & 0x08000800u) << 4);
    pairs[3] = merge<0x0E000E00u>(word >> 3, word & 0x80008000u);
  }
}

// Arranges eight columns of x as convert_nibbles() arranges eight values.
__device__ inline void pair_up(const uint4& columns, std::uint32_t (&pairs)[4]) {
  pairs[0] = __byte_perm(columns.x, columns.z, 0x5410);
  pairs[1] = __byte_perm(columns.x, columns.z, 0x7632);
  pairs[2] = __byte_perm(columns.y, columns.w, 0x5410);
  pairs[3] = __byte_perm(columns.y, columns.w, 0x7632);
}

// Converts a byte of two 4-bit values, the first in the lower half.
template <class T, Values kValues>
__device__ inline std::uint32_t convert_byte(std::uint32_t byte) {
  const std::uint32_t spread = byte * 0x1001u;  // value 0 at bit 0, value 1 at bit 16; copies between are masked out
  if constexpr (kValues == Values::kInt4) return merge<0x000F000Fu>(spread, kIsBf16<T> ? 0x43004300u : 0x64006400u);
  return place_e2m1<T>(spread << 6, spread << 12);
}

// Returns the values of a converted pair. For integers, `offset` is the result of offset_of().
template <class T, Values kValues>
__device__ inline std::uint32_t exact(std::uint32_t pair, std::uint32_t offset) {
  if constexpr (kValues == Values::kE4M3 && kIsBf16<T>) return times<T>(pair, 0x7B807B80u);               // 2^120
  if constexpr (kValues == Values::kE2M1) return times<T>(pair, kIsBf16<T> ? 0x7E807E80u : 0x74007400u);  // 2^126, 2^14
  if constexpr (kValues == Values::kInt4 || (kValues == Values::kInt8 && !kIsBf16<T>)) return minus<T>(pair, offset);
  return pair;
}

// Returns the values of a converted pair, multiplied by a scale that value_scale() has prepared.
template <class T, Values kValues>
__device__ inline std::uint32_t scaled(std::uint32_t pair, std::uint32_t offset, std::uint32_t scale) {
  if constexpr (is_float(kValues)) return times<T>(pair, scale);
  return times<T>(exact<T, kValues>(pair, offset), scale);
}

// Says whether integers with float16 scales are converted to very small bfloat16 numbers. The conversion then only
// moves bits. An int4 becomes 2^-130 times the value. A byte without a sign becomes 2^-133 times the value: its lower
// seven bits are the mantissa, and its highest bit is the lowest bit of the exponent, so the exponent is 0 or 1. One
// fused multiply-add then applies the scale and the offset. Other conversions of integers need a subtraction first.
// Scales are multiplied by kSmallScaleGrow, and offsets are divided by kSmallSumGrow, so that no product and no offset
// leaves the range of bfloat16. Sums of the results must be multiplied by kSmallSumGrow.
template <class T, Values kValues>
inline constexpr bool kSmallInts = (kValues == Values::kInt4 || kValues == Values::kInt8) && kIsBf16<T>;
inline constexpr float kSmallScaleGrow = 0x1p111F;
template <Values kValues>
inline constexpr float kSmallSumGrow = kValues == Values::kInt8 ? 0x1p22F : 0x1p19F;

// Before the conversion, the highest bit of a signed int8 is flipped. The result is the unsigned number value + 128.
// Codes that are stored with an offset are unsigned already (block_codes.h), so they are not flipped.
inline constexpr std::uint32_t kFlipSigns = 0x80808080u;

// convert_small_nibbles() and convert_small_byte() arrange values like convert_nibbles() and convert_byte(), but
// convert them to the very small numbers that kSmallInts describes.
__device__ inline void convert_small_nibbles(std::uint32_t word, std::uint32_t (&pairs)[4]) {
  pairs[0] = word << 3 & 0x00780078u;
#pragma unroll
  for (int i = 1; i < 4; ++i) pairs[i] = word >> (4 * i - 3) & 0x00780078u;
}
__device__ inline std::uint32_t convert_small_byte(std::uint32_t byte) { return byte * 0x8008u & 0x00780078u; }

// Both functions convert a word of four int8 to the very small numbers that kSmallInts describes. `flip` is kFlipSigns
// or 0. convert_small_bytes() pairs values like convert_bytes(), and convert_small_bytes_apart() like
// convert_bytes_apart().
__device__ inline void convert_small_bytes(std::uint32_t word, std::uint32_t flip, std::uint32_t (&pairs)[2]) {
  const std::uint32_t flipped = word ^ flip;
  pairs[0] = __byte_perm(flipped, 0, 0x4140);
  pairs[1] = __byte_perm(flipped, 0, 0x4342);
}
__device__ inline void convert_small_bytes_apart(std::uint32_t word, std::uint32_t flip, std::uint32_t (&pairs)[2]) {
  const std::uint32_t flipped = word ^ flip;
  pairs[0] = flipped & 0x00FF00FFu;
  pairs[1] = __byte_perm(flipped, 0, 0x4341);
}

// A float16 scale and its group's offset, in the form that scaled_and_moved() takes.
template <class T, Values kValues>
struct ScaleAndOffset {
  std::uint32_t scale = 0;
  std::uint32_t added = 0;

  // Without an offset, an int4 has the zero point 8, and a flipped int8 has the zero point 128. kZeroOfGrown is the
  // negated zero point divided by kSmallScaleGrow · kSmallSumGrow: -2^-127 for int4, and -2^-126 for int8.
  static constexpr std::uint32_t kZeroOfGrown = kValues == Values::kInt8 ? 0x80808080u : 0x80408040u;
  __device__ static ScaleAndOffset of_scale(float scale) {
    if constexpr (!kSmallInts<T, kValues>) return {.scale = both_halves<T>(scale)};
    const std::uint32_t grown = both_halves<T>(scale * kSmallScaleGrow);
    return {.scale = grown, .added = times<T>(grown, kZeroOfGrown)};
  }
  __device__ static ScaleAndOffset of_pair(float scale, float offset) {
    if constexpr (!kSmallInts<T, kValues>) return {both_halves<T>(scale), both_halves<T>(offset)};
    return {both_halves<T>(scale * kSmallScaleGrow), both_halves<T>(offset / kSmallSumGrow<kValues>)};
  }
};

// Returns the values of a converted pair, multiplied by a scale, plus an offset. The result is rounded once. `zero` is
// the result of offset_of().
template <class T, Values kValues>
__device__ inline std::uint32_t scaled_and_moved(std::uint32_t pair, std::uint32_t zero, std::uint32_t scale,
                                                 std::uint32_t added) {
  const std::uint32_t value = kSmallInts<T, kValues> ? pair : exact<T, kValues>(pair, zero);
  const PairOf<T> sum = __hfma2(reinterpret_cast<const PairOf<T>&>(value), reinterpret_cast<const PairOf<T>&>(scale),
                                reinterpret_cast<const PairOf<T>&>(added));
  return reinterpret_cast<const std::uint32_t&>(sum);
}

__device__ inline float number_of_e4m3(std::uint8_t code) {
  __nv_fp8_e4m3 number;
  number.__x = code;
  return to_float(number);
}

// Returns the number that an e2m1 code stands for. Its magnitude is 0, 0.5, 1, 1.5, 2, 3, 4 or 6. `twice` is two times
// the magnitude.
__device__ inline float number_of_e2m1(unsigned code) {
  const unsigned index = code & 7u;
  const unsigned twice = index + (index > 4 ? index - 4 : 0) + (index > 6 ? 2u : 0u);
  return static_cast<float>(twice) * ((code & 8u) != 0 ? -0.5F : 0.5F);
}

// Returns a scale in the form that scaled() takes.
template <class T, Values kValues>
__device__ inline std::uint32_t value_scale(float scale) {
  return both_halves<T>(scale * kScaleGrow<T, kValues>);
}

// The number of a column, shifted to the right by the returned number of bits, is the number of the column's group.
// Returns -1 if the matrix needs a division or a table instead of a shift.
inline int group_shift_of(const QuantisedMatrix& m) {
  if (m.groups != nullptr) return -1;
  if (m.num_groups == 1) return 31;
  const auto columns = static_cast<std::uint64_t>(m.format.group_cols);
  return std::has_single_bit(columns) ? std::countr_zero(columns) : -1;
}

// Returns whether block_codes_format() (blocks/block_codes.h) can return this format: integers with float16 scales, in
// groups of 16 or 32 columns. Kernels support integers with float16 scales only in groups of these two sizes.
inline bool is_of_block_codes(const QuantisedFormat& f) {
  const bool integers = f.values == Values::kInt4 || f.values == Values::kInt8;
  const bool halves = f.scales == Scales::kFloat16 || f.scales == Scales::kPairs;
  return integers && halves && f.group_rows == 1 && !f.factor && !f.zeros && !f.groups &&
         (f.group_cols == 16 || f.group_cols == 32);
}

// scale_at() returns the index of the scale of column k in row n. scale_of() returns the scale with that index, without
// the row's factor.
__device__ inline std::int64_t scale_at(const QuantisedMatrix& m, std::int64_t n, std::int64_t k) {
  return n / m.format.group_rows * m.num_groups + (m.groups != nullptr ? m.groups[k] : k / m.format.group_cols);
}
__device__ inline float scale_of(const QuantisedMatrix& m, std::int64_t at) {
  switch (m.format.scales) {
    case Scales::kE4M3: return number_of_e4m3(reinterpret_cast<const std::uint8_t*>(m.scales)[at]);
    case Scales::kFloat16: return to_float(reinterpret_cast<const __half*>(m.scales)[at]);
    case Scales::kPairs: return to_float(reinterpret_cast<const __half*>(m.scales)[2 * at]);
    case Scales::kFloat32: break;
  }
  return reinterpret_cast<const float*>(m.scales)[at];
}
// Returns the offset of the group whose scale has the index `at`.
__device__ inline float offset_at(const QuantisedMatrix& m, std::int64_t at) {
  return m.format.scales == Scales::kPairs ? to_float(reinterpret_cast<const __half*>(m.scales)[2 * at + 1]) : 0.0F;
}

// Returns the zero point of the int4 in row n and column k.
__device__ inline int zero_at(const QuantisedMatrix& m, std::int64_t n, std::int64_t k) {
  if (m.zeros == nullptr) return m.format.scales == Scales::kPairs ? 0 : 8;
  return m.zeros[n * m.num_groups + (m.groups != nullptr ? m.groups[k] : k / m.format.group_cols)];
}

// Returns w[n, k], computed by the formula in quantised_matrix.h.
__device__ inline float element(const QuantisedMatrix& m, std::int64_t n, std::int64_t k) {
  const bool packed = is_packed(m.format.values);
  const std::uint8_t byte = m.values[packed ? (n * m.cols + k) / 2 : n * m.cols + k];
  const unsigned code = !packed ? byte : k % 2 == 0 ? byte & 15u : byte >> 4;
  const std::int64_t at = scale_at(m, n, k);
  float value = 0;
  switch (m.format.values) {
    case Values::kE4M3: value = number_of_e4m3(static_cast<std::uint8_t>(code)); break;
    case Values::kInt8: value = static_cast<float>(static_cast<std::int8_t>(code)); break;
    case Values::kInt4: value = static_cast<float>(static_cast<int>(code) - zero_at(m, n, k)); break;
    case Values::kE2M1: value = number_of_e2m1(code); break;
    case Values::kBlocks: break;  // not on CUDA
  }
  return value * (scale_of(m, at) * (m.factor != nullptr ? m.factor[n] : 1.0F)) + offset_at(m, at);
}

}  // namespace tessera::cuda::quantised
