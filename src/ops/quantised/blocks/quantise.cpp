// Rounds numbers to the types whose scale comes from the extremes of a block. The file is compiled without fused
// multiply-add instructions, because gguf-py rounds each product.
#include "tessera/ops/quantised/blocks/quantise.h"

#include <cmath>
#include <cstring>

#include "tessera/base/cpu_clones.h"
#include "tessera/base/float16.h"
#include "tessera/ops/quantised/blocks/block_bytes.h"
#include "tessera/ops/quantised/blocks/put_codes.h"
#include "tessera/ops/quantised/blocks/quantise_searched.h"
#include "tessera/ops/quantised/blocks/scale_search.h"

namespace tessera {
namespace {

using block_bytes::put_f16;
using scale_search::greatest_of;

constexpr int kBlock = 32;

TESSERA_INLINE float inverse_of(float scale) { return scale == 0 ? 0 : 1 / scale; }

// Truncates x to an integer and limits it to `most`.
TESSERA_INLINE std::uint32_t code_of(float x, std::uint32_t most) {
  const auto code = static_cast<std::uint32_t>(static_cast<std::int32_t>(x));
  return code > most ? most : code;
}

// Rounds a block to integers from −half to half − 1, writes their codes, and returns the scale. The number with the
// greatest magnitude gets the least code.
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

// OCP's MXFP4. The block's exponent is the exponent of the greatest magnitude, minus 2, because E2M1's largest power of
// two is 2^2. A tie goes to the lesser code.
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
void each_block(const float* x, const float* /*importance*/, std::int64_t count, std::uint8_t* blocks) {
  for (std::int64_t i = 0; i < count; ++i) kBlockOf(x + i * kBlock, blocks + i * kBytes);
}

template <class Float>
void plain(const float* x, const float* /*importance*/, std::int64_t count, std::uint8_t* to) {
  for (std::int64_t i = 0; i < count; ++i) {
    const Float rounded = from_float<Float>(x[i]);
    std::memcpy(to + i * std::int64_t{sizeof(rounded)}, &rounded, sizeof(rounded));
  }
}

using Quantise = void (*)(const float* x, const float* importance, std::int64_t count, std::uint8_t* blocks);

// The functions that round to a type. `plain` is null if quantise() does not support the type. `important` is null if
// the type ignores importances.
struct Functions {
  Quantise plain = nullptr;
  Quantise important = nullptr;
};

Functions functions_of(BlockType type) {
  const auto both = [](Quantise function) { return Functions{function, function}; };
  switch (type) {
    case BlockType::kF32: return {plain<float>};
    case BlockType::kF16: return {plain<Float16>};
    case BlockType::kBF16: return {plain<BFloat16>};
    case BlockType::kQ4_0: return {each_block<q4_0, 18>, quantise_q4_0_important};
    case BlockType::kQ4_1: return {each_block<q4_1, 20>, quantise_q4_1_important};
    case BlockType::kQ5_0: return {each_block<q5_0, 22>, quantise_q5_0_important};
    case BlockType::kQ5_1: return {each_block<q5_1, 24>, quantise_q5_1_important};
    case BlockType::kQ8_0: return {each_block<q8_0, 34>};
    case BlockType::kMXFP4: return {each_block<mxfp4, 17>};
    case BlockType::kQ2_K: return both(quantise_q2_k);
    case BlockType::kQ3_K: return both(quantise_q3_k);
    case BlockType::kQ4_K: return both(quantise_q4_k);
    case BlockType::kQ5_K: return both(quantise_q5_k);
    case BlockType::kQ6_K: return both(quantise_q6_k);
    case BlockType::kIQ4_NL: return both(quantise_iq4_nl);
    case BlockType::kIQ4_XS: return both(quantise_iq4_xs);
    default: return {};
  }
}

}  // namespace

bool can_quantise(BlockType type) { return functions_of(type).plain != nullptr; }

bool uses_importance(BlockType type) { return functions_of(type).important != nullptr; }

void quantise(BlockType type, const float* x, std::int64_t count, std::uint8_t* blocks, const float* importance) {
  const Functions functions = functions_of(type);
  const bool important = importance != nullptr && functions.important != nullptr;
  (important ? functions.important : functions.plain)(x, importance, count, blocks);
}

}  // namespace tessera
