// Each function rounds blocks of one type whose scales are searched. In blocks of 256 numbers, each part of 16 or 32
// numbers has a scale of its own: an integer times the float16 scale of the block. The file is compiled without fused
// multiply-add instructions, so that the results are equal on all CPUs.
#include "tessera/ops/quantised/blocks/quantise_searched.h"

#include <cstring>

#include "tessera/base/cpu_clones.h"
#include "tessera/ops/quantised/blocks/block_bytes.h"
#include "tessera/ops/quantised/blocks/scale_search.h"

namespace tessera {
namespace {

using namespace block_bytes;   // NOLINT(google-build-using-namespace): only for this file's formulas
using namespace scale_search;  // NOLINT(google-build-using-namespace)

constexpr int kBlock = 256;

// Returns the importances from `first` on; null if there are none.
TESSERA_INLINE const float* part_of(const float* importance, int first) {
  return importance != nullptr ? importance + first : nullptr;
}

// Returns scale / unit as an integer from `least` to `most`; 0 if the unit is 0.
TESSERA_INLINE int steps_of(float scale, float unit, float least, float most) {
  return unit == 0 ? 0 : static_cast<int>(nearest(clamped(scale / unit, least, most)));
}

TESSERA_INLINE float mean_square_of(const float* x) { return sum_of_products<kBlock>(x, x) / kBlock; }

// The scales and minimums of a block's parts.
template <int kParts>
struct AffineParts {
  float d;      // the unit of `scales`, rounded to float16
  float least;  // the unit of `minimums`, rounded to float16
  std::uint32_t scales[kParts];
  std::uint32_t minimums[kParts];
};

// Rounds the numbers of all parts to codes from 0 to `most`, and the parts' scales and minimums to integers up to
// `most_scale`.
template <int kParts>
TESSERA_INLINE void fit_parts(const float* x, const float* importance, float most, float most_scale,
                              AffineParts<kParts>& parts, std::uint8_t* codes) {
  constexpr int kCount = kBlock / kParts;
  const float mean_square = importance != nullptr ? mean_square_of(x) : 0;
  AffineFit fits[kParts];
  float greatest_scale = 0;
  float greatest_minimum = 0;
  for (int part = 0; part < kParts; ++part) {
    float w[kCount];
    if (importance != nullptr)
      weigh_by_importance<kCount>(x + part * kCount, importance + part * kCount, mean_square, w);
    else
      weigh_by_magnitude<kCount>(x + part * kCount, w);
    fits[part] = fit_affine<kCount>(x + part * kCount, w, most);
    greatest_scale = std::max(greatest_scale, fits[part].scale);
    greatest_minimum = std::max(greatest_minimum, fits[part].minimum);
  }
  parts.d = to_float(from_float<Float16>(greatest_scale / most_scale));
  parts.least = to_float(from_float<Float16>(greatest_minimum / most_scale));
  for (int part = 0; part < kParts; ++part) {
    const int scale = steps_of(fits[part].scale, parts.d, 0, most_scale);
    const int minimum = steps_of(fits[part].minimum, parts.least, 0, most_scale);
    parts.scales[part] = static_cast<std::uint32_t>(scale);
    parts.minimums[part] = static_cast<std::uint32_t>(minimum);
    const float step = parts.d * static_cast<float>(scale);
    const float inverse = step < kLeast ? 0 : 1 / step;
    const float offset = parts.least * static_cast<float>(minimum);
    for (int i = part * kCount; i < (part + 1) * kCount; ++i)
      codes[i] = static_cast<std::uint8_t>(nearest(clamped((x[i] + offset) * inverse, 0, most)));
  }
}

// Rounds the numbers of all parts to integers from −half to half − 1, and the parts' scales to integers from
// −scale_half to scale_half − 1. A code is such an integer plus `half`. Returns the block's scale.
template <int kParts>
TESSERA_INLINE float fit_signed_parts(const float* x, const float* importance, float half, float scale_half,
                                      int* scales, std::uint8_t* codes) {
  constexpr int kCount = kBlock / kParts;
  constexpr float kStep = 0.1F;
  constexpr int kSteps = 9;
  const SignedIntegers numbers{.half = half};
  const float mean_square = importance != nullptr ? mean_square_of(x) : 0;
  float fits[kParts];
  for (int part = 0; part < kParts; ++part) {
    float w[kCount];
    if (importance != nullptr)
      weigh_by_importance<kCount>(x + part * kCount, importance + part * kCount, mean_square, w);
    else
      weigh_by_square<kCount>(x + part * kCount, w);
    fits[part] = fit_scale<kCount>(x + part * kCount, w, numbers, kStep, kSteps);
  }
  const float d = to_float(from_float<Float16>(greatest_of(fits, kParts) / -scale_half));
  for (int part = 0; part < kParts; ++part) {
    scales[part] = steps_of(fits[part], d, -scale_half, scale_half - 1);
    const float step = d * static_cast<float>(scales[part]);
    const float inverse = std::abs(step) < kLeast ? 0 : 1 / step;
    for (int i = part * kCount; i < (part + 1) * kCount; ++i)
      codes[i] = static_cast<std::uint8_t>(nearest(clamped(x[i] * inverse, -half, half - 1)) + half);
  }
  return d;
}

// Takes two bits of each code, from the code's bit `shift` on, and writes them to `to`, 128 codes per 32 bytes.
TESSERA_INLINE void put_pairs_of_bits(const std::uint8_t* codes, int shift, std::uint8_t* to) {
  std::memset(to, 0, kBlock / 4);
  for (int i = 0; i < kBlock; ++i) {
    const std::uint32_t bits = (codes[i] >> shift & 3u) << (2 * (i / 32 % 4));
    to[i / 128 * 32 + i % 32] = static_cast<std::uint8_t>(to[i / 128 * 32 + i % 32] | bits);
  }
}

// Writes the lower four bits of codes: 32 bytes hold the bits of two parts of 32 codes each.
TESSERA_INLINE void put_nibbles_of_parts(const std::uint8_t* codes, std::uint8_t* to) {
  for (int i = 0; i < kBlock / 2; ++i) {
    const std::uint8_t* const first = codes + i / 32 * 64 + i % 32;
    to[i] = static_cast<std::uint8_t>((first[0] & 15u) | (first[32] & 15u) << 4u);
  }
}

// Writes the first 16 bytes of Q4_K and Q5_K: the block's two float16 units (one for scales, one for minimums), and six
// bits for each part's scale and minimum.
TESSERA_INLINE void put_scales_and_minimums(const AffineParts<8>& parts, std::uint8_t* to) {
  put_f16(to, parts.d);
  put_f16(to + 2, parts.least);
  to += 4;
  for (int part = 0; part < 4; ++part) {
    const std::uint32_t scale = parts.scales[part + 4];
    const std::uint32_t minimum = parts.minimums[part + 4];
    to[part] = static_cast<std::uint8_t>(parts.scales[part] | (scale >> 4u) << 6u);
    to[part + 4] = static_cast<std::uint8_t>(parts.minimums[part] | (minimum >> 4u) << 6u);
    to[part + 8] = static_cast<std::uint8_t>((scale & 15u) | (minimum & 15u) << 4u);
  }
}

// The numbers of IQ4_NL, which are not evenly spaced. nearest_to() begins with the least number. For each midpoint
// below x, it adds the distance between the midpoint's two numbers.
struct Iq4Numbers {
  TESSERA_INLINE float greatest() const { return kIq4Numbers[0]; }
  TESSERA_INLINE float nearest_to(float x) const {
    float number = kIq4Numbers[0];
    for (int k = 0; k < 15; ++k) number += x > middle(k) ? static_cast<float>(kIq4Numbers[k + 1] - kIq4Numbers[k]) : 0;
    return number;
  }
  TESSERA_INLINE static std::uint32_t code_of(float x) {
    std::uint32_t code = 0;
    for (int k = 0; k < 15; ++k) code += x > middle(k) ? 1u : 0u;
    return code;
  }

 private:
  TESSERA_INLINE static float middle(int k) { return 0.5F * static_cast<float>(kIq4Numbers[k] + kIq4Numbers[k + 1]); }
};

constexpr int kIq4Count = 32;

// Returns the scale of 32 numbers. `importance` is null, or has an importance for each of the numbers.
TESSERA_INLINE float fit_iq4(const float* x, const float* importance, float mean_square) {
  constexpr int kSteps = 7;
  float w[kIq4Count];
  if (importance != nullptr)
    weigh_by_importance<kIq4Count>(x, importance, mean_square, w);
  else
    weigh_by_square<kIq4Count>(x, w);
  return fit_scale<kIq4Count>(x, w, Iq4Numbers{}, 1.0F, kSteps);
}

// Writes the codes of 32 numbers: the first 16 codes into the lower halves of bytes, and the others into the upper
// halves.
TESSERA_INLINE void put_iq4(const float* x, float step, std::uint8_t* to) {
  const float inverse = std::abs(step) < kLeast ? 0 : 1 / step;
  std::uint32_t codes[kIq4Count];
  for (int i = 0; i < kIq4Count; ++i) codes[i] = Iq4Numbers::code_of(x[i] * inverse);
  for (int i = 0; i < kIq4Count / 2; ++i) to[i] = static_cast<std::uint8_t>(codes[i] | codes[i + 16] << 4u);
}

}  // namespace

TESSERA_CPU_CLONES void quantise_q2_k(const float* x, const float* importance, std::int64_t count, std::uint8_t* b) {
  for (; count > 0; --count, x += kBlock, importance = part_of(importance, kBlock), b += 84) {
    AffineParts<16> parts;
    std::uint8_t codes[kBlock];
    fit_parts<16>(x, importance, 3, 15, parts, codes);
    for (int part = 0; part < 16; ++part)
      b[part] = static_cast<std::uint8_t>(parts.scales[part] | parts.minimums[part] << 4u);
    put_pairs_of_bits(codes, 0, b + 16);
    put_f16(b + 80, parts.d);
    put_f16(b + 82, parts.least);
  }
}

TESSERA_CPU_CLONES void quantise_q3_k(const float* x, const float* importance, std::int64_t count, std::uint8_t* b) {
  for (; count > 0; --count, x += kBlock, importance = part_of(importance, kBlock), b += 110) {
    int scales[16];
    std::uint8_t codes[kBlock];
    const float d = fit_signed_parts<16>(x, importance, 4, 32, scales, codes);
    std::memset(b, 0, 32);
    for (int i = 0; i < kBlock; ++i) b[i % 32] = static_cast<std::uint8_t>(b[i % 32] | (codes[i] >> 2u) << (i / 32));
    put_pairs_of_bits(codes, 0, b + 32);
    std::memset(b + 96, 0, 12);
    for (int part = 0; part < 16; ++part) {
      const auto scale = static_cast<std::uint32_t>(scales[part] + 32);
      std::uint8_t& low = b[96 + part % 8];
      std::uint8_t& high = b[104 + part % 4];
      low = static_cast<std::uint8_t>(low | (scale & 15u) << (4 * (part / 8)));
      high = static_cast<std::uint8_t>(high | (scale >> 4u) << (2 * (part / 4)));
    }
    put_f16(b + 108, d);
  }
}

TESSERA_CPU_CLONES void quantise_q4_k(const float* x, const float* importance, std::int64_t count, std::uint8_t* b) {
  for (; count > 0; --count, x += kBlock, importance = part_of(importance, kBlock), b += 144) {
    AffineParts<8> parts;
    std::uint8_t codes[kBlock];
    fit_parts<8>(x, importance, 15, 63, parts, codes);
    put_scales_and_minimums(parts, b);
    put_nibbles_of_parts(codes, b + 16);
  }
}

TESSERA_CPU_CLONES void quantise_q5_k(const float* x, const float* importance, std::int64_t count, std::uint8_t* b) {
  for (; count > 0; --count, x += kBlock, importance = part_of(importance, kBlock), b += 176) {
    AffineParts<8> parts;
    std::uint8_t codes[kBlock];
    fit_parts<8>(x, importance, 31, 63, parts, codes);
    put_scales_and_minimums(parts, b);
    std::memset(b + 16, 0, 32);
    for (int i = 0; i < kBlock; ++i)
      b[16 + i % 32] = static_cast<std::uint8_t>(b[16 + i % 32] | (codes[i] >> 4u) << (i / 32));
    put_nibbles_of_parts(codes, b + 48);
  }
}

TESSERA_CPU_CLONES void quantise_q6_k(const float* x, const float* importance, std::int64_t count, std::uint8_t* b) {
  for (; count > 0; --count, x += kBlock, importance = part_of(importance, kBlock), b += 210) {
    int scales[16];
    std::uint8_t codes[kBlock];
    const float d = fit_signed_parts<16>(x, importance, 32, 128, scales, codes);
    for (int i = 0; i < kBlock / 2; ++i) {
      const std::uint8_t* const first = codes + i / 64 * 128 + i % 64;
      b[i] = static_cast<std::uint8_t>((first[0] & 15u) | (first[64] & 15u) << 4u);
    }
    put_pairs_of_bits(codes, 4, b + 128);
    for (int part = 0; part < 16; ++part) b[192 + part] = static_cast<std::uint8_t>(scales[part]);
    put_f16(b + 208, d);
  }
}

TESSERA_CPU_CLONES void quantise_iq4_nl(const float* x, const float* importance, std::int64_t count, std::uint8_t* b) {
  for (; count > 0; --count, x += kIq4Count, importance = part_of(importance, kIq4Count), b += 18) {
    const float mean_square = importance != nullptr ? sum_of_products<kIq4Count>(x, x) / kIq4Count : 0;
    const float d = to_float(from_float<Float16>(fit_iq4(x, importance, mean_square)));
    put_f16(b, d);
    put_iq4(x, d, b + 2);
  }
}

TESSERA_CPU_CLONES void quantise_iq4_xs(const float* x, const float* importance, std::int64_t count, std::uint8_t* b) {
  constexpr int kParts = 8;
  constexpr float kScaleHalf = 32;
  for (; count > 0; --count, x += kBlock, importance = part_of(importance, kBlock), b += 136) {
    const float mean_square = importance != nullptr ? mean_square_of(x) : 0;
    float fits[kParts];
    for (int part = 0; part < kParts; ++part)
      fits[part] = fit_iq4(x + part * kIq4Count, part_of(importance, part * kIq4Count), mean_square);
    const float d = to_float(from_float<Float16>(greatest_of(fits, kParts) / -kScaleHalf));
    put_f16(b, d);
    std::uint32_t high = 0;
    std::memset(b + 4, 0, 4);
    for (int part = 0; part < kParts; ++part) {
      const int steps = steps_of(fits[part], d, -kScaleHalf, kScaleHalf - 1);
      const auto scale = static_cast<std::uint32_t>(steps + 32);
      b[4 + part / 2] = static_cast<std::uint8_t>(b[4 + part / 2] | (scale & 15u) << (4 * (part % 2)));
      high |= (scale >> 4u) << (2 * part);
      put_iq4(x + part * kIq4Count, d * static_cast<float>(steps), b + 8 + part * kIq4Count / 2);
    }
    b[2] = static_cast<std::uint8_t>(high);
    b[3] = static_cast<std::uint8_t>(high >> 8u);
  }
}

}  // namespace tessera
