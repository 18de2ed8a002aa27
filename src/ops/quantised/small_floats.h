// Numbers of eight and four bits as float32, and scales that may be such numbers, for the CPU's kernels.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "tessera/ops/cpu/cpu_math.h"
#include "tessera/ops/quantised/quantised_matrix.h"

namespace tessera {

// A sign, four bits of exponent, three of mantissa; 0x7f is NaN.
TESSERA_INLINE float number_of_e4m3(std::uint32_t v) {
  const std::uint32_t magnitude = (v & 0x7fu) << 20;
  // A normal number needs another bias of the exponent, 127 in place of 7. A subnormal one becomes the fraction of a
  // normal number, whose leading one is then taken away.
  const float normal = std::bit_cast<float>(magnitude + (120u << 23));
  const float subnormal = std::bit_cast<float>(magnitude + (121u << 23)) - std::bit_cast<float>(121u << 23);
  float value = magnitude < (1u << 23) ? subnormal : normal;
  value = (v & 0x7fu) == 0x7fu ? std::numeric_limits<float>::quiet_NaN() : value;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) | (v & 0x80u) << 24);
}

// A sign, two bits of exponent, one of mantissa.
TESSERA_INLINE float number_of_e2m1(std::uint32_t v) {
  const auto index = static_cast<std::int32_t>(v & 7u);
  // Twice a magnitude is 0, 1, 2, 3, 4, 6, 8 or 12.
  const std::int32_t twice = index + (index > 4 ? index - 4 : 0) + (index > 6 ? 2 : 0);
  const float value = 0.5F * static_cast<float>(twice);
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) | (v & 8u) << 28);
}

// Returns element `at` of the matrix's scales, without the factor of a row.
TESSERA_INLINE float stored_scale(const QuantisedMatrix& m, std::int64_t at) {
  if (m.format.scales == QuantisedFormat::Scales::kE4M3)
    return number_of_e4m3(std::to_integer<std::uint32_t>(m.scales[at]));
  return reinterpret_cast<const float*>(m.scales)[at];
}

}  // namespace tessera
