#include "tessera/ops/moe/cpu_mxfp4.h"

#include <bit>
#include <limits>

#include "tessera/ops/cpu/cpu_vector.h"
#include "tessera/ops/moe/moe_experts.h"

namespace tessera {
namespace {

static_assert(kMxfp4Block == 2 * kVecFloats);

// Returns 2^(bits - 127), or NaN if `bits` is 255.
TESSERA_INLINE float e8m0(std::uint8_t bits) {
  if (bits == 0) return std::bit_cast<float>(0x00400000u);
  if (bits == 255) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 23);
}

// Converts 4-bit (E2M1) numbers to float32, multiplies them by 2 · `half`, and returns the bits of the products. Twice
// a number's magnitude is an integer (0, 1, 2, 3, 4, 6, 8 or 12). The function computes this integer and multiplies it
// by `half`.
TESSERA_INLINE VecU16 e2m1_bits(VecI16 const& four, float half) {
  const VecI16 index = four & 7;
  const VecI16 twice = index + ((index - 4) & (index > 4)) + (((index - 6) & (index > 6)) << 1);
  const VecU16 magnitude = reinterpret_cast<VecU16>(__builtin_convertvector(twice, Vec16) * half);
  return magnitude ^ (reinterpret_cast<VecU16>(four & 8) << 28);
}

// The three overloads store the numbers of `low` and `high` alternately. The overload for bfloat16 stores the upper
// halves of the float32 numbers. The lower halves are zero, so no value is rounded. The overload for float16 rounds.
TESSERA_INLINE void store_in_turn(float* y, VecU16 const& low, VecU16 const& high) {
  const VecI16 first{0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23};
  const VecI16 second{8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  store16(y, reinterpret_cast<Vec16>(__builtin_shuffle(low, high, first)));
  store16(y + kVecFloats, reinterpret_cast<Vec16>(__builtin_shuffle(low, high, second)));
}
TESSERA_INLINE void store_in_turn(BFloat16* y, VecU16 const& low, VecU16 const& high) {
  const VecU16 pairs = (low >> 16) | (high & 0xffff0000u);
  std::memcpy(y, &pairs, sizeof(pairs));
}
TESSERA_INLINE void store_in_turn(Float16* y, VecU16 const& low, VecU16 const& high) {
  float values[kMxfp4Block];
  store_in_turn(values, low, high);
  for (std::int64_t i = 0; i < kMxfp4Block; ++i) y[i] = from_float<Float16>(values[i]);
}

template <class T>
TESSERA_CPU_CLONES void unpack(const std::uint8_t* packed, const std::uint8_t* scales, T* y, std::int64_t blocks) {
  for (std::int64_t b = 0; b < blocks; ++b) {
    std::int32_t wide[kVecFloats];  // g++ widens vectors of bytes one element at a time, but vectorises this loop
    for (std::int64_t i = 0; i < kVecFloats; ++i) wide[i] = packed[b * kVecFloats + i];
    VecI16 pairs;
    std::memcpy(&pairs, wide, sizeof(pairs));
    const float half = 0.5F * e8m0(scales[b]);
    store_in_turn(y + b * kMxfp4Block, e2m1_bits(pairs & 15, half), e2m1_bits(pairs >> 4, half));
  }
}

}  // namespace

template <class T>
void unpack_mxfp4(const std::uint8_t* packed, const std::uint8_t* scales, T* y, std::int64_t blocks) {
  unpack(packed, scales, y, blocks);
}

template void unpack_mxfp4(const std::uint8_t*, const std::uint8_t*, float*, std::int64_t);
template void unpack_mxfp4(const std::uint8_t*, const std::uint8_t*, BFloat16*, std::int64_t);
template void unpack_mxfp4(const std::uint8_t*, const std::uint8_t*, Float16*, std::int64_t);

}  // namespace tessera
