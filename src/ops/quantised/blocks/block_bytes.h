// Reads and writes the parts of a block of a GGUF tensor. All numbers in blocks are little-endian, and none is aligned.
#pragma once

#include <cstdint>
#include <cstring>

#include "tessera/base/float16.h"

namespace tessera::block_bytes {

static_assert(std::endian::native == std::endian::little);

TESSERA_INLINE std::uint16_t u16(const std::uint8_t* p) {
  std::uint16_t v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}
TESSERA_INLINE std::uint32_t u32(const std::uint8_t* p) {
  std::uint32_t v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}
TESSERA_INLINE float f16(const std::uint8_t* p) { return to_float(Float16{u16(p)}); }
TESSERA_INLINE void put_f16(std::uint8_t* p, float x) {
  const std::uint16_t bits = from_float<Float16>(x).bits;
  std::memcpy(p, &bits, sizeof(bits));
}

// Returns four bits of a byte: the lower ones if `half` is 0, and the upper ones if it is 1.
TESSERA_INLINE std::uint32_t nibble(std::uint8_t byte, std::int64_t half) { return byte >> (4 * half) & 15u; }

// The scale and the minimum of 32 values of Q4_K and Q5_K, six bits each.
struct ScaleAndMinimum {
  std::uint32_t scale;
  std::uint32_t minimum;
};
// Returns the scale and the minimum of part `part`. Each of the parts 0 to 7 of a block has 32 values. `p` points to
// the block's 12 bytes of scales and minima.
TESSERA_INLINE ScaleAndMinimum scale_and_minimum(const std::uint8_t* p, std::int64_t part) {
  if (part < 4) return {.scale = p[part] & 63u, .minimum = p[part + 4] & 63u};
  const std::uint32_t low = p[part + 4];
  return {.scale = (low & 15u) | (p[part - 4] >> 6u) << 4u, .minimum = low >> 4u | (p[part] >> 6u) << 4u};
}

// Returns the scale, -32 to 31, of part `part` of a block of Q3_K. Each of the parts 0 to 15 has 16 values. `p` points
// to the block's 12 bytes of scales.
TESSERA_INLINE std::int32_t q3_scale(const std::uint8_t* p, std::int64_t part) {
  const std::uint32_t low = nibble(p[part % 8], part / 8);
  const std::uint32_t high = p[8 + part % 4] >> (2 * (part / 4)) & 3u;
  return static_cast<std::int32_t>(low | high << 4u) - 32;
}

// Returns the scale, -32 to 31, of part `part` of a block of IQ4_XS. Each part has 32 values. `low` points to 4 bytes
// with the lower four bits of the scales; `high` has the upper two bits of each scale.
TESSERA_INLINE std::int32_t iq4_scale(const std::uint8_t* low, std::uint32_t high, std::int64_t part) {
  return static_cast<std::int32_t>(nibble(low[part / 2], part % 2) | (high >> (2 * part) & 3u) << 4u) - 32;
}

// Returns 2^(code - 127) / 2 for an E8M0 code. The factor 1 / 2 makes up for kE2M1Doubled, which holds E2M1's numbers
// doubled.
TESSERA_INLINE float half_e8m0(std::uint32_t code) {
  return std::bit_cast<float>(code < 2 ? 0x00200000u << code : (code - 1) << 23u);
}

// Two tables that are indexed by code: E2M1's numbers, doubled, and the numbers of IQ4_NL and IQ4_XS.
inline constexpr std::int8_t kE2M1Doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
inline constexpr std::int8_t kIq4Numbers[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                1,    13,   25,  38,  53,  69,  89,  113};

}  // namespace tessera::block_bytes
