// Codec<type>::decode converts an element of a stored type to float32. For F32, F16 and BF16, encode converts a float32
// to an element. Bits is the integer type of the stored bits.
#pragma once

#include <cstdint>
#include <limits>

#include "tessera/base/float16.h"
#include "tessera/model/weights/stored_dtype.h"

namespace tessera {

template <StoredDtype kType>
struct Codec;

template <>
struct Codec<StoredDtype::kF32> {
  using Bits = float;
  static float decode(float v) { return v; }
  static float encode(float v) { return v; }
};

template <>
struct Codec<StoredDtype::kBF16> {
  using Bits = std::uint16_t;
  static float decode(std::uint16_t v) { return to_float(BFloat16{v}); }
  static std::uint16_t encode(float v) { return from_float<BFloat16>(v).bits; }
};

template <>
struct Codec<StoredDtype::kF16> {
  using Bits = std::uint16_t;
  static float decode(std::uint16_t v) { return to_float(Float16{v}); }
  static std::uint16_t encode(float v) { return from_float<Float16>(v).bits; }
};

template <>
struct Codec<StoredDtype::kI8> {
  using Bits = std::int8_t;
  static float decode(std::int8_t v) { return static_cast<float>(v); }
};

// E4M3 has four bits of exponent, three of mantissa and no infinities (Micikevicius et al., arXiv 2209.05433).
template <>
struct Codec<StoredDtype::kF8E4M3> {
  using Bits = std::uint8_t;
  static float decode(std::uint8_t v) {
    // Interprets the bits without the sign as a half-precision float. The exponent biases of the two formats differ by
    // 8, so the result is multiplied by 2^8. This is also right for subnormal numbers.
    const float magnitude = to_float(Float16{static_cast<std::uint16_t>((v & 0x7fu) << 7)}) * 256.0F;
    const float value = (v & 0x7fu) == 0x7fu ? std::numeric_limits<float>::quiet_NaN() : magnitude;
    return (v & 0x80u) != 0 ? -value : value;
  }
};

// E5M2 is the upper byte of a half-precision float.
template <>
struct Codec<StoredDtype::kF8E5M2> {
  using Bits = std::uint8_t;
  static float decode(std::uint8_t v) { return to_float(Float16{static_cast<std::uint16_t>(v << 8)}); }
};

}  // namespace tessera
