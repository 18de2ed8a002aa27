// Unpacks 4-bit weights (mxfp4 in moe_experts.h) to bfloat16 in registers, for moe_experts' kernels.
//
// The bits of a value are moved into a bfloat16 number, which is then 2^-126 times the value (E2M1 in
// quantised_values.cuh). Then one multiplication by 2^126 times the block's scale factor gives the weight exactly. A
// word holds eight neighbouring values, and two values that are four apart become a pair. For eight values, the
// conversion takes five left shifts, eight other instructions and four multiplications, one for each pair. Left shifts
// cost little, because they issue at the same time as logic instructions.
#pragma once

#include "tessera/ops/moe/moe_experts.cuh"
#include "tessera/ops/quantised/quantised_values.cuh"

namespace tessera::cuda::moe {

inline constexpr int kPackedBlock = static_cast<int>(kMxfp4Block);

using quantised::pair_up;

__device__ inline std::uint32_t times(std::uint32_t pair, std::uint32_t factors) {
  return quantised::times<__nv_bfloat16>(pair, factors);
}

// The scale factor 2^(scale - 127) of a block, multiplied by 2^126, because the results of unpack_raw() are 2^-126
// times the values.
class PackedFactor {
 public:
  __device__ explicit PackedFactor(unsigned scale)
      // Makes two bfloat16 numbers with the bits (scale + 126) << 7.
      : scale_(scale), first_(min(scale, kLargest) * 0x00800080u + 0x3f003f00u) {}

  __device__ std::uint32_t first() const { return first_; }
  // Returns whether the factor is too large for one bfloat16 number. If so, the factor is the product of first() and
  // second(), and second() is 2^(scale - 128), or NaN.
  __device__ bool is_large() const { return scale_ > kLargest; }
  __device__ std::uint32_t second() const { return scale_ == 255 ? 0x7fc07fc0u : (scale_ - 1) * 0x00800080u; }

 private:
  static constexpr unsigned kLargest = 128;
  unsigned scale_;
  std::uint32_t first_;
};

// The factors of two neighbouring blocks of a row, in the form that PackedFactor describes.
class PackedFactors {
 public:
  // The scale of the first block is in the lower byte, and the scale of the second block in the next byte.
  __device__ explicit PackedFactors(std::uint32_t scales) { scales_ = __byte_perm(scales, 0, 0x4140); }

  // Returns the block's PackedFactor::first().
  __device__ std::uint32_t first(int block) const {
    return of_block(__vminu2(scales_, kLargest) * 0x80U + 0x3f003f00U, block);
  }
  __device__ bool has_large() const { return __vminu2(scales_, kLargest) != scales_; }
  // Returns the block's PackedFactor::second(), or 1 if the first factor suffices.
  __device__ std::uint32_t second(int block) const {
    const PackedFactor factor(of_block(scales_, block) & 0xFFU);
    return factor.is_large() ? factor.second() : 0x3f803f80U;
  }

 private:
  static constexpr std::uint32_t kLargest = 0x00800080U;
  // Returns a word whose two halves are both equal to half number `block` of `word`.
  __device__ static std::uint32_t of_block(std::uint32_t word, int block) {
    return __byte_perm(word, 0, block == 0 ? 0x1010 : 0x3232);
  }
  std::uint32_t scales_;  // one scale in each half of the word
};

// Converts the values i and i + 4 of `word` to pairs[i], multiplied by 2^-126 but not by the scale factor of their
// block.
__device__ inline void unpack_raw(std::uint32_t word, std::uint32_t (&pairs)[4]) {
  quantised::convert_nibbles<__nv_bfloat16, QuantisedFormat::Values::kE2M1>(word, pairs);
}

// Converts the values i and i + 4 of `word` to pairs[i], multiplied by the scale factor of their block.
__device__ inline void unpack_word(std::uint32_t word, const PackedFactor& factor, std::uint32_t (&pairs)[4]) {
  unpack_raw(word, pairs);
#pragma unroll
  for (std::uint32_t& pair : pairs) pair = times(pair, factor.first());
  if (!factor.is_large()) return;
#pragma unroll
  for (std::uint32_t& pair : pairs) pair = times(pair, factor.second());
}

// Transposes 32 columns of x as a matrix of 8 by 4: column 4 i + j goes to place 8 j + i. columns[j] then holds pair j
// for each of four words of weights.
__device__ inline void pair_up(uint4 (&columns)[4]) {
  std::uint32_t pairs[4][4];
#pragma unroll
  for (int i = 0; i < 4; ++i) pair_up(columns[i], pairs[i]);
#pragma unroll
  for (int i = 0; i < 4; ++i) columns[i] = make_uint4(pairs[0][i], pairs[1][i], pairs[2][i], pairs[3][i]);
}

// Returns one value in float32. `index` counts the values of all experts' rows.
template <class T>
__device__ inline float packed_weight(const Matmul<T>& p, std::int64_t index) {
  const unsigned bits = p.packed[index / 2] >> (index % 2 * 4) & 15u;
  const unsigned scale = p.scales[index / kPackedBlock];
  const float factor = __uint_as_float(scale == 0 ? 0x00400000u : scale == 255 ? 0x7fc00000u : scale << 23);
  return quantised::number_of_e2m1(bits) * factor;
}

}  // namespace tessera::cuda::moe
