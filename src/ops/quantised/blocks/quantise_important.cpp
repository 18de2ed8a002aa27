// Rounds numbers to Q4_0, Q4_1, Q5_0 and Q5_1 if the importance of each number is known. In this case the scales are
// found by a search. The file is compiled without fused multiply-add instructions, so that the results are equal on all
// CPUs.
#include "tessera/base/cpu_clones.h"
#include "tessera/ops/quantised/blocks/block_bytes.h"
#include "tessera/ops/quantised/blocks/put_codes.h"
#include "tessera/ops/quantised/blocks/quantise.h"
#include "tessera/ops/quantised/blocks/quantise_searched.h"
#include "tessera/ops/quantised/blocks/scale_search.h"

namespace tessera {
namespace {

using namespace scale_search;  // NOLINT(google-build-using-namespace): only for this file's formulas
using block_bytes::put_f16;

constexpr int kBlock = 32;

TESSERA_INLINE void weigh(const float* x, const float* importance, float* w) {
  weigh_by_importance<kBlock>(x, importance, sum_of_products<kBlock>(x, x) / kBlock, w);
}

TESSERA_INLINE float inverse_of(float scale) { return std::abs(scale) < kLeast ? 0 : 1 / scale; }

// Rounds a block to integers from −half to half − 1. Writes the block's scale to `to`, and the codes of the integers to
// `codes`.
TESSERA_INLINE void signed_codes(const float* x, const float* w, float half, std::uint8_t* to, std::uint32_t* codes) {
  constexpr float kStep = 0.1F;
  constexpr int kSteps = 9;
  const float d = to_float(from_float<Float16>(fit_scale<kBlock>(x, w, SignedIntegers{.half = half}, kStep, kSteps)));
  put_f16(to, d);
  const float inverse = inverse_of(d);
  for (int i = 0; i < kBlock; ++i)
    codes[i] =
        static_cast<std::uint32_t>(clamped(nearest(clamped(x[i] * inverse, -half, half)), -half, half - 1) + half);
}

// Rounds a block to integers from 0 to `most`. Writes the block's scale and least number to `to`, and the integers to
// `codes`.
TESSERA_INLINE void affine_codes(const float* x, const float* w, float most, std::uint8_t* to, std::uint32_t* codes) {
  const AffineFit fit = fit_affine<kBlock>(x, w, most);
  const float d = to_float(from_float<Float16>(fit.scale));
  const float minimum = to_float(from_float<Float16>(clamped(fit.minimum, 0, kMostQuantised)));
  put_f16(to, d);
  put_f16(to + 2, -minimum);
  const float inverse = inverse_of(d);
  for (int i = 0; i < kBlock; ++i)
    codes[i] = static_cast<std::uint32_t>(nearest(clamped((x[i] + minimum) * inverse, 0, most)));
}

// Writes blocks with codes of kBits bits. A block has the scale, the least number (if kAffine), the fifth bits of the
// codes (if kBits is 5), and the lower four bits of the codes.
template <int kBits, bool kAffine>
TESSERA_INLINE void quantise_blocks(const float* x, const float* importance, std::int64_t count, std::uint8_t* b) {
  constexpr int kScaleBytes = kAffine ? 4 : 2;
  constexpr int kFifthBytes = kBits == 5 ? 4 : 0;
  constexpr int kBytes = kScaleBytes + kFifthBytes + kBlock / 2;
  constexpr auto kCodes = static_cast<float>(1 << kBits);
  for (; count > 0; --count, x += kBlock, importance += kBlock, b += kBytes) {
    float w[kBlock];
    weigh(x, importance, w);
    std::uint32_t codes[kBlock];
    if constexpr (kAffine)
      affine_codes(x, w, kCodes - 1, b, codes);
    else
      signed_codes(x, w, kCodes / 2, b, codes);
    if constexpr (kBits == 5) put_fifth_bits(codes, b + kScaleBytes);
    put_nibbles(codes, b + kScaleBytes + kFifthBytes);
  }
}

}  // namespace

TESSERA_CPU_CLONES void quantise_q4_0_important(const float* x, const float* importance, std::int64_t count,
                                                std::uint8_t* blocks) {
  quantise_blocks<4, false>(x, importance, count, blocks);
}

TESSERA_CPU_CLONES void quantise_q4_1_important(const float* x, const float* importance, std::int64_t count,
                                                std::uint8_t* blocks) {
  quantise_blocks<4, true>(x, importance, count, blocks);
}

TESSERA_CPU_CLONES void quantise_q5_0_important(const float* x, const float* importance, std::int64_t count,
                                                std::uint8_t* blocks) {
  quantise_blocks<5, false>(x, importance, count, blocks);
}

TESSERA_CPU_CLONES void quantise_q5_1_important(const float* x, const float* importance, std::int64_t count,
                                                std::uint8_t* blocks) {
  quantise_blocks<5, true>(x, importance, count, blocks);
}

}  // namespace tessera
