// Converts 8-bit and 4-bit numbers to float32, and reads scales and offsets, for the CPU's kernels.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "tessera/base/float16.h"
#include "tessera/base/float8.h"
#include "tessera/ops/cpu/cpu_math.h"
#include "tessera/ops/quantised/quantised_matrix.h"

namespace tessera {

// Returns the number that an e2m1 code stands for. A code has a sign, two bits of exponent and one of mantissa.
TESSERA_INLINE float number_of_e2m1(std::uint32_t v) {
  const auto index = static_cast<std::int32_t>(v & 7u);
  // The magnitude is 0, 0.5, 1, 1.5, 2, 3, 4 or 6. `twice` is two times the magnitude.
  const std::int32_t twice = index + (index > 4 ? index - 4 : 0) + (index > 6 ? 2 : 0);
  const float value = 0.5F * static_cast<float>(twice);
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) | (v & 8u) << 28);
}

// Returns scale `at` of the matrix, without the factor of a row.
TESSERA_INLINE float stored_scale(const QuantisedMatrix& m, std::int64_t at) {
  using Scales = QuantisedFormat::Scales;
  switch (m.format.scales) {
    case Scales::kE4M3: return number_of_e4m3(std::to_integer<std::uint32_t>(m.scales[at]));
    case Scales::kFloat16: return to_float(reinterpret_cast<const Float16*>(m.scales)[at]);
    case Scales::kPairs: return to_float(reinterpret_cast<const Float16*>(m.scales)[2 * at]);
    case Scales::kFloat32: break;
  }
  return reinterpret_cast<const float*>(m.scales)[at];
}

// Returns the offset of the group to which scale `at` belongs. Returns −0 if the format has no offsets, because adding
// −0 changes no number.
TESSERA_INLINE float stored_offset(const QuantisedMatrix& m, std::int64_t at) {
  if (m.format.scales != QuantisedFormat::Scales::kPairs) return -0.0F;
  return to_float(reinterpret_cast<const Float16*>(m.scales)[2 * at + 1]);
}

}  // namespace tessera
