// Defines bfloat16 and IEEE half precision as storage types. Arithmetic uses float32. Conversions are branch-free bit
// operations. Loops over them therefore vectorise on any target, and the results do not depend on flush-to-zero modes.
// Conversions to float32 are exact. Conversions from float32 round to nearest, ties to even. Their results may be
// subnormal or infinite, and NaN becomes a quiet NaN.
#pragma once

#include <bit>
#include <cstdint>

// Forces inlining. The code is then compiled with its caller, once for each instruction set (cpu_clones.h).
#define TESSERA_INLINE inline __attribute__((always_inline))

namespace tessera {

struct BFloat16 {
  std::uint16_t bits;
};
struct Float16 {
  std::uint16_t bits;
};

TESSERA_INLINE float to_float(float x) { return x; }
TESSERA_INLINE float to_float(BFloat16 x) { return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16); }
// The conversion is exact for subnormals, infinities and NaN too.
TESSERA_INLINE float to_float(Float16 x) {
  const std::uint32_t magnitude = static_cast<std::uint32_t>(x.bits & 0x7fff) << 13;
  const std::uint32_t sign = static_cast<std::uint32_t>(x.bits & 0x8000) << 16;
  const std::uint32_t normal = magnitude + ((127u - 15u) << 23);
  const std::uint32_t special = magnitude + ((255u - 31u) << 23);
  // A subnormal number is its ten fraction bits times 2^-24. It is computed as the difference of two normal floats, so
  // flush-to-zero modes do not affect it.
  const float base = std::bit_cast<float>(113u << 23);  // 2^-14
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude + (113u << 23)) - base);
  std::uint32_t bits = magnitude >= (31u << 23) ? special : normal;
  bits = magnitude < (1u << 23) ? subnormal : bits;
  return std::bit_cast<float>(bits | sign);
}

// Rounds to nearest, ties to even. NaN stays NaN.
template <class T>
TESSERA_INLINE T from_float(float x);
template <>
TESSERA_INLINE float from_float<float>(float x) {
  return x;
}
template <>
TESSERA_INLINE BFloat16 from_float<BFloat16>(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const std::uint32_t quiet_nan = (bits >> 16) | 0x40u;
  return {static_cast<std::uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet_nan : rounded)};
}
template <>
TESSERA_INLINE Float16 from_float<Float16>(float x) {
  const std::uint32_t all = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t bits = all & 0x7fffffffu;
  // For a magnitude of 65520 or more, rounding carries into exponent 31, which means infinity.
  const std::uint32_t normal = (bits - ((127u - 15u) << 23) + 0xfffu + ((bits >> 13) & 1u)) >> 13;
  // A result below 2^-14 is subnormal. The last bit of a subnormal has the value 2^-24, and so has the last bit of a
  // float between 0.5 and 1. Adding 0.5 therefore rounds the number to a multiple of 2^-24, with ties to even.
  const std::uint32_t subnormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(bits) + 0.5f) - std::bit_cast<std::uint32_t>(0.5f);
  const std::uint32_t special = bits > 0x7f800000u ? 0x7e00u : 0x7c00u;
  std::uint32_t half = bits < (113u << 23) ? subnormal : normal;
  half = bits >= (143u << 23) ? special : half;
  return {static_cast<std::uint16_t>(half | ((all >> 16) & 0x8000u))};
}

}  // namespace tessera
