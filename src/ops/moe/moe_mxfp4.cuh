// Unpacks weights of 4 bits (mxfp4 in moe_experts.h) to bfloat16 in registers, for moe_experts' kernels.
//
// The four bits of a value are a sign, two exponent bits and one mantissa bit. Placed at the ends of bfloat16's fields,
// they are 2^-126 times the value; the smallest value becomes a subnormal number. One product with 2^126 and the
// block's factor then gives the weight exactly. A word holds eight neighbouring values, and values four apart become a
// pair. Eight values cost five left shifts, which issue beside logic instructions, and eight other instructions, then
// one product a pair.
#pragma once

#include "tessera/ops/moe/moe_experts.cuh"

namespace tessera::cuda::moe {

inline constexpr int kPackedBlock = static_cast<int>(kMxfp4Block);

__device__ inline std::uint32_t times(std::uint32_t pair, std::uint32_t factors) {
  const __nv_bfloat162 product =
      __hmul2(reinterpret_cast<const __nv_bfloat162&>(pair), reinterpret_cast<const __nv_bfloat162&>(factors));
  return reinterpret_cast<const std::uint32_t&>(product);
}

// The factor 2^(scale - 127) of a block, to be multiplied with pairs of values times 2^-126.
class PackedFactor {
 public:
  __device__ explicit PackedFactor(unsigned scale)
      // Two bfloat16 numbers with the bits (scale + 126) << 7
      : scale_(scale), first_(min(scale, kLargest) * 0x00800080u + 0x3f003f00u) {}

  __device__ std::uint32_t first() const { return first_; }
  // Returns whether the factor exceeds the largest power of two that bfloat16 holds here. Then second() is the rest of
  // the factor: 2^(scale - 128), or NaN.
  __device__ bool is_large() const { return scale_ > kLargest; }
  __device__ std::uint32_t second() const { return scale_ == 255 ? 0x7fc07fc0u : (scale_ - 1) * 0x00800080u; }

 private:
  static constexpr unsigned kLargest = 128;
  unsigned scale_;
  std::uint32_t first_;
};

// Makes pairs[i] of the values i and i + 4 of `word`, times 2^-126 and without their block's factor. Signs are cut out
// for two values at once: one sign is in its place, the other lies where bits of the value will replace it. This is
// assembly because the compiler, which sees the zeros, would cut out each sign by itself.
__device__ inline void unpack_raw(std::uint32_t word, std::uint32_t (&pairs)[4]) {
  std::uint32_t even;
  std::uint32_t odd;
  asm("and.b32 %0, %1, 0x08080808;" : "=r"(even) : "r"(word));
  asm("and.b32 %0, %1, 0x80808080;" : "=r"(odd) : "r"(word));
  const auto join = [](std::uint32_t rest, std::uint32_t signs) {
    std::uint32_t pair;
    // Takes bits of `rest` where the mask is one
    asm("lop3.b32 %0, %1, 0x01c001c0, %2, 0xe2;" : "=r"(pair) : "r"(rest), "r"(signs));
    return pair;
  };
  pairs[0] = join(word << 6, even << 12);  // left shifts issue beside logic instructions
  pairs[1] = join(word << 2, odd << 8);
  pairs[2] = join(word >> 2, even << 4);
  pairs[3] = join(word >> 6, odd);
}

// Makes pairs[i] of the values i and i + 4 of `word`, times the block's factor.
__device__ inline void unpack_word(std::uint32_t word, const PackedFactor& factor, std::uint32_t (&pairs)[4]) {
  unpack_raw(word, pairs);
#pragma unroll
  for (std::uint32_t& pair : pairs) pair = times(pair, factor.first());
  if (!factor.is_large()) return;
#pragma unroll
  for (std::uint32_t& pair : pairs) pair = times(pair, factor.second());
}

// Arranges eight columns of x in the pairs of unpack_word().
__device__ inline void pair_up(const uint4& columns, std::uint32_t (&pairs)[4]) {
  pairs[0] = __byte_perm(columns.x, columns.z, 0x5410);
  pairs[1] = __byte_perm(columns.x, columns.z, 0x7632);
  pairs[2] = __byte_perm(columns.y, columns.w, 0x5410);
  pairs[3] = __byte_perm(columns.y, columns.w, 0x7632);
}

// Arranges 32 columns of x so that the pairs of eight words are neighbours: transposes them as a matrix of 8 by 4.
__device__ inline void pair_up(uint4 (&columns)[4]) {
  std::uint32_t pairs[4][4];
#pragma unroll
  for (int i = 0; i < 4; ++i) pair_up(columns[i], pairs[i]);
#pragma unroll
  for (int i = 0; i < 4; ++i) columns[i] = make_uint4(pairs[0][i], pairs[1][i], pairs[2][i], pairs[3][i]);
}

// Returns one value in float32. `index` counts values in the stack.
template <class T>
__device__ inline float packed_weight(const Matmul<T>& p, std::int64_t index) {
  const unsigned bits = p.packed[index / 2] >> (index % 2 * 4) & 15u;
  const unsigned scale = p.scales[index / kPackedBlock];
  const unsigned exponent = bits >> 1 & 3u;
  const unsigned normal = exponent != 0 ? 1u : 0u;
  const float value = 0.5f * static_cast<float>(((bits & 1u) | normal << 1) << (exponent - normal));
  const float factor = __uint_as_float(scale == 0 ? 0x00400000u : scale == 255 ? 0x7fc00000u : scale << 23);
  return ((bits & 8u) != 0 ? -value : value) * factor;
}

}  // namespace tessera::cuda::moe
