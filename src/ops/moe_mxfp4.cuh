// Weights of 4 bits (mxfp4 in moe_experts.h) for moe_experts' kernels: bytes become bfloat16 in registers.
//
// The four bits of a value are a sign, two of exponent and one of mantissa; put at the ends of bfloat16's fields they
// are 2^-126 times the value, the smallest one as a subnormal number. One product with 2^126 and the block's factor
// makes the weight of it, exactly. A word has eight neighbouring values; those four apart become a pair with two
// shifts and two logical instructions, so that eight cost four times five.
#pragma once

#include "tessera/ops/moe_experts.cuh"

namespace tessera::cuda::moe {

inline constexpr int kPackedBlock = static_cast<int>(kMxfp4Block);

__device__ inline std::uint32_t times(std::uint32_t pair, std::uint32_t factors) {
  const __nv_bfloat162 product =
      __hmul2(reinterpret_cast<const __nv_bfloat162&>(pair), reinterpret_cast<const __nv_bfloat162&>(factors));
  return reinterpret_cast<const std::uint32_t&>(product);
}

// Values i and i + 4 of `word` are pairs[i], times 2^(scale - 127).
__device__ inline void unpack_word(std::uint32_t word, unsigned scale, std::uint32_t (&pairs)[4]) {
  constexpr unsigned kLargest = 128;  // with 2^126 bfloat16's greatest power of two
  const std::uint32_t factor = (min(scale, kLargest) + 126u) << 7;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t at_top = word << (12 - 4 * i);
    pairs[i] = times((at_top & 0x80008000u) | ((at_top >> 6) & 0x01c001c0u), factor * 0x10001u);
  }
  if (scale <= kLargest) return;
  const std::uint32_t rest = scale == 255 ? 0x7fc0u : (scale - 1) << 7;  // NaN, or 2^(scale - 128)
#pragma unroll
  for (int i = 0; i < 4; ++i) pairs[i] = times(pairs[i], rest * 0x10001u);
}

// A value in float32, as `index` counts them in the stack.
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
