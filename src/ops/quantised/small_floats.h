// Converts numbers of eight and four bits to float32, and reads scales that are float32 or such numbers, for the CPU's
// kernels.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "tessera/base/float8.h"
#include "tessera/ops/cpu/cpu_math.h"
#include "tessera/ops/quantised/quantised_matrix.h"

namespace tessera {

// Returns the number of an e2m1 code: a sign, two bits of exponent, one of mantissa.
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
