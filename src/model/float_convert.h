// float32 ↔ bfloat16 and IEEE half by bit operations: no branches, so that loops over them vectorise on any target,
// and independent of flush-to-zero modes. To nearest, ties to even; NaN stays a (quiet) NaN.
#pragma once

#include <bit>
#include <cstdint>

namespace tessera {

inline float float_from_bf16(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

inline std::uint16_t bf16_from_float(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const std::uint32_t nan = (bits >> 16) | 0x40u;
  return static_cast<std::uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

inline float float_from_f16(std::uint16_t half) {
  const std::uint32_t magnitude = (std::uint32_t{half} & 0x7fffu) << 13;  // exponent and mantissa in float's places
  const std::uint32_t normal = magnitude + ((127u - 15u) << 23);
  const std::uint32_t special = magnitude + ((255u - 31u) << 23);  // infinity and NaN keep the greatest exponent
  // A subnormal m · 2^-24 is the difference of two normal floats, 2^-14 (1 + m / 2^10) - 2^-14.
  const float smallest_normal = std::bit_cast<float>(113u << 23);
  const std::uint32_t subnormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude + (113u << 23)) - smallest_normal);
  std::uint32_t bits = magnitude >= (31u << 23) ? special : normal;
  bits = magnitude < (1u << 23) ? subnormal : bits;
  return std::bit_cast<float>(bits | ((std::uint32_t{half} & 0x8000u) << 16));
}

inline std::uint16_t f16_from_float(float value) {
  const std::uint32_t all = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t bits = all & 0x7fffffffu;
  const std::uint32_t normal = (bits - ((127u - 15u) << 23) + 0xfffu + ((bits >> 13) & 1u)) >> 13;
  // Adding 0.5 moves the last kept bit of a half subnormal (2^-24) to float's last bit: the addition rounds.
  const float half = 0.5f;
  const std::uint32_t subnormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(bits) + half) - std::bit_cast<std::uint32_t>(half);
  const std::uint32_t special = bits > 0x7f800000u ? 0x7e00u : 0x7c00u;
  std::uint32_t result = bits < (113u << 23) ? subnormal : normal;
  result = bits >= (143u << 23) ? special : result;  // 2^16 and above; 65520 … 65535 round up to infinity by `normal`
  return static_cast<std::uint16_t>(result | ((all >> 16) & 0x8000u));
}

}  // namespace tessera
