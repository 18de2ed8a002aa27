// Vectors of sixteen floats, for kernels that depend on good use of registers. Compilers split a vector into registers
// of the instruction set: one register for AVX-512, two for AVX2, four for SSE or NEON.
#pragma once

#include <cstdint>
#include <cstring>

#include "tessera/base/float8.h"
#include "tessera/ops/cpu/cpu_math.h"

// -Wpsabi warns that calling conventions for such vectors differ between instruction sets. The warning does not apply,
// because every function that takes or returns such a vector is inlined, here and in all sources that include this
// header.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace tessera {

inline constexpr std::int64_t kVecFloats = 16;

typedef float Vec16 __attribute__((vector_size(64)));
typedef std::uint32_t VecU16 __attribute__((vector_size(64)));
typedef std::int32_t VecI16 __attribute__((vector_size(64)));
typedef std::uint16_t VecHalf16 __attribute__((vector_size(32)));
typedef std::uint8_t VecByte16 __attribute__((vector_size(16)));

TESSERA_INLINE Vec16 splat16(float x) { return Vec16{} + x; }

TESSERA_INLINE Vec16 load16(const float* p) {
  Vec16 v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}
TESSERA_INLINE Vec16 load16(const BFloat16* p) {
  VecHalf16 half;
  std::memcpy(&half, p, sizeof(half));
  return reinterpret_cast<Vec16>(__builtin_convertvector(half, VecU16) << 16);
}
// Loads 16 numbers, by the same steps as to_float(Float16).
TESSERA_INLINE Vec16 load16(const Float16* p) {
  VecHalf16 half;
  std::memcpy(&half, p, sizeof(half));
  const VecU16 wide = __builtin_convertvector(half, VecU16);
  const VecU16 magnitude = (wide & 0x7fffu) << 13;
  const VecU16 sign = (wide & 0x8000u) << 16;
  const Vec16 lifted = reinterpret_cast<Vec16>(magnitude + (113u << 23));
  const VecU16 subnormal = reinterpret_cast<VecU16>(lifted - std::bit_cast<float>(113u << 23));
  VecU16 bits = magnitude >= (31u << 23) ? magnitude + ((255u - 31u) << 23) : magnitude + ((127u - 15u) << 23);
  bits = magnitude < (1u << 23) ? subnormal : bits;
  return reinterpret_cast<Vec16>(bits | sign);
}
// Converts E4M3 numbers. A lane of `magnitude` holds the exponent and mantissa from bit 20 on, and a lane of `sign`
// holds the sign in bit 31.
TESSERA_INLINE Vec16 numbers_of_e4m3(VecU16 const& magnitude, VecU16 const& sign) {
  const VecU16 rebiased = magnitude + (120u << 23);  // changes the exponent's bias from 7 to 127
  const auto value = reinterpret_cast<Vec16>(magnitude == 0x7fu << 20 ? VecU16{} + 0x7fc00000u : rebiased);
  // For a subnormal number m / 8 · 2^-6, `value` is (1 + m / 8) · 2^-7, and `lifted` is the correct number. `lifted` is
  // smaller than `value` only for subnormal numbers, so the smaller of the two is the correct number.
  const Vec16 lifted = value * 2.0f - std::bit_cast<float>(121u << 23);
  return reinterpret_cast<Vec16>(reinterpret_cast<VecU16>(lifted < value ? lifted : value) | sign);
}
// Loads 16 numbers. Bytes are widened to 32 bits in two steps, because in one step g++ 12 widens them one by one.
TESSERA_INLINE Vec16 load16(const Float8E4M3* p) {
  VecByte16 bytes;
  std::memcpy(&bytes, p, sizeof(bytes));
  const VecU16 wide = __builtin_convertvector(__builtin_convertvector(bytes, VecHalf16), VecU16);
  return numbers_of_e4m3((wide & 0x7fu) << 20, (wide & 0x80u) << 24);
}
// Loads 64 numbers as 16 words of four numbers, and extracts the numbers with shifts, which are faster than widening
// instructions. Lane i of to[j] comes from byte j of word i, so it is number 4 · i + j.
TESSERA_INLINE void load_by_fours(const Float8E4M3* p, Vec16 (&to)[4]) {
  constexpr std::uint32_t kMagnitude = 0x7fu << 20;
  constexpr std::uint32_t kSign = 1u << 31;
  VecU16 words;
  std::memcpy(&words, p, sizeof(words));
  to[0] = numbers_of_e4m3(words << 20 & kMagnitude, words << 24 & kSign);
  to[1] = numbers_of_e4m3(words << 12 & kMagnitude, words << 16 & kSign);
  to[2] = numbers_of_e4m3(words << 4 & kMagnitude, words << 8 & kSign);
  to[3] = numbers_of_e4m3(words >> 4 & kMagnitude, words & kSign);
}
TESSERA_INLINE void store16(float* p, const Vec16& v) { std::memcpy(p, &v, sizeof(v)); }

// Returns the sum of all lanes, added in one fixed order.
TESSERA_INLINE float sum16(Vec16 const& lanes) {
  Vec16 v = lanes;
  v += __builtin_shuffle(v, VecI16{8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7});
  v += __builtin_shuffle(v, VecI16{4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3});
  v += __builtin_shuffle(v, VecI16{2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1});
  return v[0] + v[1];
}

namespace internal {

// Divides the 16 x 16 tile into squares of 2·kStride rows and columns. Swaps the upper right and the lower left quarter
// of each square.
template <int kStride>
TESSERA_INLINE void exchange_blocks(Vec16 (&rows)[16]) {
  VecI16 upper{};
  VecI16 lower{};
  for (int lane = 0; lane < 16; ++lane) {
    upper[lane] = (lane & kStride) == 0 ? lane : 16 + lane - kStride;
    lower[lane] = (lane & kStride) == 0 ? lane + kStride : 16 + lane;
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) {
    if ((i & kStride) != 0) continue;
    const Vec16 a = rows[i];
    const Vec16 b = rows[i + kStride];
    rows[i] = __builtin_shuffle(a, b, upper);
    rows[i + kStride] = __builtin_shuffle(a, b, lower);
  }
}

}  // namespace internal

// Transposes a tile of 16 x 16 numbers: rows[i][j] becomes rows[j][i].
TESSERA_INLINE void transpose16(Vec16 (&rows)[16]) {
  internal::exchange_blocks<8>(rows);
  internal::exchange_blocks<4>(rows);
  internal::exchange_blocks<2>(rows);
  internal::exchange_blocks<1>(rows);
}

}  // namespace tessera
