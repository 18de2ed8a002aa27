// Defines E4M3, an eight-bit floating-point storage type with one sign bit, four exponent bits and three mantissa bits.
// Its range is -448 to 448. It has no infinity, and 0x7f and 0xff are NaN. Conversions are branch-free bit operations,
// like those of float16.h.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "tessera/base/float16.h"

namespace tessera {

struct Float8E4M3 {
  std::uint8_t bits;
};

// Returns exactly the number that the lowest eight bits of `v` encode in E4M3.
TESSERA_INLINE float number_of_e4m3(std::uint32_t v) {
  const std::uint32_t magnitude = (v & 0x7fu) << 20;
  // A normal number only needs another exponent bias, 127 instead of 7. The bits of a subnormal number become the
  // fraction of a float whose leading bit is 2^-6. Subtracting 2^-6 then leaves the number.
  const float normal = std::bit_cast<float>(magnitude + (120u << 23));
  const float subnormal = std::bit_cast<float>(magnitude + (121u << 23)) - std::bit_cast<float>(121u << 23);
  float value = magnitude < (1u << 23) ? subnormal : normal;
  value = (v & 0x7fu) == 0x7fu ? std::numeric_limits<float>::quiet_NaN() : value;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) | (v & 0x80u) << 24);
}

TESSERA_INLINE float to_float(Float8E4M3 x) { return number_of_e4m3(x.bits); }

// Rounds to nearest, ties to even. Magnitudes above 448, infinities included, become 448. Every NaN becomes 0x7f.
template <>
TESSERA_INLINE Float8E4M3 from_float<Float8E4M3>(float x) {
  const std::uint32_t all = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t bits = all & 0x7fffffffu;
  constexpr std::uint32_t kGreatest = 0x43e00000u;  // 448
  const std::uint32_t bounded = bits < kGreatest ? bits : kGreatest;
  const std::uint32_t normal = (bounded - (120u << 23) + 0x7ffffu + ((bounded >> 20) & 1u)) >> 20;
  // The last bit of a subnormal number has the value 2^-9, and so has the last bit of a float between 2^14 and 2^15.
  // Adding 2^14 therefore rounds the number to a multiple of 2^-9, with ties to even.
  const float base = std::bit_cast<float>(141u << 23);
  const std::uint32_t subnormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(bounded) + base) - std::bit_cast<std::uint32_t>(base);
  std::uint32_t number = bounded < (121u << 23) ? subnormal : normal;
  number |= (all >> 24) & 0x80u;
  return {static_cast<std::uint8_t>(bits > 0x7f800000u ? 0x7fu : number)};
}

}  // namespace tessera
