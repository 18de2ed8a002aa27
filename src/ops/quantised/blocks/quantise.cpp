// Rounds numbers to the types whose scale comes from the extremes of a block. The file is compiled without fused
// multiply-add instructions, because gguf-py rounds each product.
#include "tessera/ops/quantised/blocks/quantise.h"

#include <cmath>
#include <cstring>

#include "tessera/base/cpu_clones.h"
#include "tessera/base/float16.h"
#include "tessera/ops/quantised/blocks/block_bytes.h"
#include "tessera/ops/quantised/blocks/quantise_searched.h"
#include "tessera/ops/quantised/blocks/scale_search.h"

namespace tessera {
namespace {

using block_bytes::put_f16;
using scale_search::greatest_of;

constexpr int kBlock = 32;

TESSERA_INLINE float inverse_of(float scale) { return scale == 0 ? 0 : 1 / scale; }

// Truncates x to an integer, at most `most`.
TESSERA_INLINE std::uint32_t code_of(float x, std::uint32_t most) {
  const auto code = static_cast<std::uint32_t>(static_cast<std::int32_t>(x));
  return code > most ? most : code;
}

// Writes the lower four bits of codes: the first 16 into the lower halves of bytes.
TESSERA_INLINE void put_nibbles(const std::uint32_t* codes, std::uint8_t* to) {
  for (int i = 0; i < kBlock / 2; ++i) to[i] = static_cast<std::uint8_t>((codes[i] & 15u) | codes[i + 16] << 4u);
}

// Writes the fifth bits of codes.
TESSERA_INLINE void put_fifth_bits(const std::uint32_t* codes, std::uint8_t* to) {
  std::uint32_t bits = 0;
  for (int i = 0; i < kBlock; ++i) bits |= (codes[i] >> 4u) << i;
  std::memcpy(to, &bits, sizeof(bits));
}

// Writes the codes of integers from −half to half − 1, and returns the scale. The number of the greatest magnitude gets
// the least code.
TESSERA_INLINE float signed_codes(const float* x, std::uint32_t half, std::uint32_t* codes) {
  const float d = greatest_of(x, kBlock) / -static_cast<float>(half);
  const float inverse = inverse_of(d);
  for (int i = 0; i < kBlock; ++i) codes[i] = code_of(x[i] * inverse + (static_cast<float>(half) + 0.5F), 2 * half - 1);
  return d;
}

// A code's number is scale · code + least.
struct Affine {
  float scale;
  float least;
};
TESSERA_INLINE Affine affine_codes(const float* x, std::uint32_t most, std::uint32_t* codes) {
  float least = x[0];
  float greatest = x[0];
  for (int i = 1; i < kBlock; ++i) {
    least = x[i] < least ? x[i] : least;
    greatest = x[i] > greatest ? x[i] : greatest;
  }
  const float d = (greatest - least) / static_cast<float>(most);
  const float inverse = inverse_of(d);
  for (int i = 0; i < kBlock; ++i) codes[i] = code_of((x[i] - least) * inverse + 0.5F, most);
  return {.scale = d, .least = least};
}

void q4_0(const float* x, std::uint8_t* b) {
  std::uint32_t codes[kBlock];
  put_f16(b, signed_codes(x, 8, codes));
  put_nibbles(codes, b + 2);
}

void q4_1(const float* x, std::uint8_t* b) {
  std::uint32_t codes[kBlock];
  const Affine affine = affine_codes(x, 15, codes);
  put_f16(b, affine.scale);
  put_f16(b + 2, affine.least);
  put_nibbles(codes, b + 4);
}

void q5_0(const float* x, std::uint8_t* b) {
  std::uint32_t codes[kBlock];
  put_f16(b, signed_codes(x, 16, codes));
  put_fifth_bits(codes, b + 2);
  put_nibbles(codes, b + 6);
}

void q5_1(const float* x, std::uint8_t* b) {
  std::uint32_t codes[kBlock];
  const Affine affine = affine_codes(x, 31, codes);
  put_f16(b, affine.scale);
  put_f16(b + 2, affine.least);
  put_fifth_bits(codes, b + 4);
  put_nibbles(codes, b + 8);
}

// Q8_0 rounds halves away from zero.
void q8_0(const float* x, std::uint8_t* b) {
  const float d = std::abs(greatest_of(x, kBlock)) / 127.0F;
  const float inverse = inverse_of(d);
  put_f16(b, d);
  for (int i = 0; i < kBlock; ++i) b[2 + i] = static_cast<std::uint8_t>(std::lround(x[i] * inverse));
}

// OCP's MXFP4. The block's exponent is that of the greatest magnitude minus 2, because E2M1's largest power of two is
// 2^2. A tie goes to the lesser code.
void mxfp4(const float* x, std::uint8_t* b) {
  constexpr int kBias = 127;
  constexpr int kLargestPower = 2;
  const float greatest = std::abs(greatest_of(x, kBlock));
  const int exponent = greatest > 0 ? std::max(0, std::ilogb(greatest) - kLargestPower + kBias) : 0;
  b[0] = static_cast<std::uint8_t>(exponent);
  const float d = block_bytes::half_e8m0(b[0]);
  std::uint32_t codes[kBlock];
  for (int i = 0; i < kBlock; ++i) {
    codes[i] = 0;
    float least = std::abs(x[i]);
    for (std::uint32_t code = 1; code < 16; ++code) {
      const float error = std::abs(d * static_cast<float>(block_bytes::kE2M1Doubled[code]) - x[i]);
      if (error >= least) continue;
      least = error;
      codes[i] = code;
    }
  }
  put_nibbles(codes, b + 1);
}

template <void (*kBlockOf)(const float*, std::uint8_t*), int kBytes>
void each_block(const float* x, std::int64_t count, std::uint8_t* blocks) {
  for (std::int64_t i = 0; i < count; ++i) kBlockOf(x + i * kBlock, blocks + i * kBytes);
}

template <class Float>
void plain(const float* x, std::int64_t count, std::uint8_t* to) {
  for (std::int64_t i = 0; i < count; ++i) {
    const Float rounded = from_float<Float>(x[i]);
    std::memcpy(to + i * std::int64_t{sizeof(rounded)}, &rounded, sizeof(rounded));
  }
}

using Quantise = void (*)(const float*, std::int64_t, std::uint8_t*);

Quantise function_of(BlockType type) {
  switch (type) {
    case BlockType::kF32: return plain<float>;
    case BlockType::kF16: return plain<Float16>;
    case BlockType::kBF16: return plain<BFloat16>;
    case BlockType::kQ4_0: return each_block<q4_0, 18>;
    case BlockType::kQ4_1: return each_block<q4_1, 20>;
    case BlockType::kQ5_0: return each_block<q5_0, 22>;
    case BlockType::kQ5_1: return each_block<q5_1, 24>;
    case BlockType::kQ8_0: return each_block<q8_0, 34>;
    case BlockType::kMXFP4: return each_block<mxfp4, 17>;
    case BlockType::kQ2_K: return quantise_q2_k;
    case BlockType::kQ3_K: return quantise_q3_k;
    case BlockType::kQ4_K: return quantise_q4_k;
    case BlockType::kQ5_K: return quantise_q5_k;
    case BlockType::kQ6_K: return quantise_q6_k;
    case BlockType::kIQ4_NL: return quantise_iq4_nl;
    case BlockType::kIQ4_XS: return quantise_iq4_xs;
    default: return nullptr;
  }
}

}  // namespace

bool can_quantise(BlockType type) { return function_of(type) != nullptr; }

void quantise(BlockType type, const float* x, std::int64_t count, std::uint8_t* blocks) {
  function_of(type)(x, count, blocks);
}

}  // namespace tessera
