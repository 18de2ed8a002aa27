// This file is compiled without fused multiply-add instructions, so that the results are equal on all CPUs.
#include "tessera/model/rounding/search_scales.h"

#include <algorithm>
#include <cmath>

#include "tessera/base/cpu_clones.h"
#include "tessera/base/float8.h"
#include "tessera/ops/quantised/blocks/scale_search.h"

namespace tessera {
namespace {

// The number of lanes in which sums are accumulated. It divides the size of every block.
constexpr std::int64_t kLanes = 16;

// The following structs, one for each format, round quotients. nearest() returns the number that is stored for a
// quotient.
struct Int4 {
  TESSERA_INLINE static float nearest(float q) { return scale_search::nearest(scale_search::clamped(q, -8.0F, 7.0F)); }
};
// Rounds to 0, 0.5, 1, 1.5, 2, 3, 4 or 6. The thresholds are the midpoints, as in round_values().
struct E2M1 {
  TESSERA_INLINE static float nearest(float q) {
    const float m = std::abs(q);
    const float magnitude = (m > 0.25F ? 0.5F : 0.0F) + (m >= 0.75F ? 0.5F : 0.0F) + (m > 1.25F ? 0.5F : 0.0F) +
                            (m >= 1.75F ? 0.5F : 0.0F) + (m > 2.5F ? 1.0F : 0.0F) + (m >= 3.5F ? 1.0F : 0.0F) +
                            (m > 5.0F ? 2.0F : 0.0F);
    return q < 0 ? -magnitude : magnitude;
  }
};

// Returns Σ w (x − divisor · q)² with the numbers q that round_values() chooses.
template <class To>
TESSERA_INLINE float error_of(const float* x, const float* w, std::int64_t count, float divisor) {
  float sums[kLanes] = {};
  for (std::int64_t at = 0; at < count; at += kLanes) {
#pragma GCC unroll 1
    for (std::int64_t i = 0; i < kLanes; ++i) {
      const float difference = x[at + i] - divisor * To::nearest(x[at + i] / divisor);
      sums[i] += w[at + i] * (difference * difference);
    }
  }
  return scale_search::sum_of<kLanes>(sums);
}

// Rounds x · inverse to the nearest integers, and returns the scale with which these integers have the least weighted
// squared error. Returns 0 if all integers are 0.
TESSERA_INLINE float fit_int4(const float* x, const float* w, std::int64_t count, float inverse) {
  float wxq[kLanes] = {};
  float wqq[kLanes] = {};
  for (std::int64_t at = 0; at < count; at += kLanes) {
#pragma GCC unroll 1
    for (std::int64_t i = 0; i < kLanes; ++i) {
      const float q = Int4::nearest(x[at + i] * inverse);
      wxq[i] += w[at + i] * x[at + i] * q;
      wqq[i] += w[at + i] * q * q;
    }
  }
  const float sum_wqq = scale_search::sum_of<kLanes>(wqq);
  return sum_wqq > 0 ? scale_search::sum_of<kLanes>(wxq) / sum_wqq : 0;
}

TESSERA_CPU_CLONES void search_int4(const float* x, const float* w, std::int64_t block, float* scales,
                                    std::int64_t count) {
  // Each candidate scale maps the block's greatest magnitude to a number in kLeastTop … kMostTop. Quotients above 7 are
  // clamped to 7.
  constexpr float kGreatest = 7.0F;
  constexpr float kLeastTop = 6.0F;
  constexpr float kMostTop = 9.0F;
  constexpr float kStep = 0.125F;
  for (std::int64_t b = 0; b < count; ++b, x += block, w += block) {
    const float greatest = scales[b] * kGreatest;
    float least_error = error_of<Int4>(x, w, block, scales[b]);
    for (float top = kLeastTop; top <= kMostTop; top += kStep) {
      const float scale = fit_int4(x, w, block, top / greatest);
      if (!(scale > scale_search::kLeast)) continue;
      const float error = error_of<Int4>(x, w, block, scale);
      if (!(error < least_error)) continue;
      least_error = error;
      scales[b] = scale;
    }
  }
}

TESSERA_CPU_CLONES void search_e2m1(const float* x, const float* w, std::int64_t block, float factor, float* scales,
                                    std::int64_t count) {
  // The given scale maps the block's greatest magnitude to 6. The candidates are this scale and its neighbours among
  // the numbers of E4M3, which has eight numbers in an octave. The candidates map the greatest magnitude to about 4 …
  // 8.
  constexpr int kBelow = 3;
  constexpr int kAbove = 5;
  constexpr int kGreatestCode = 0x7e;
  for (std::int64_t b = 0; b < count; ++b, x += block, w += block) {
    const int code = from_float<Float8E4M3>(scales[b]).bits;
    float least_error = error_of<E2M1>(x, w, block, scales[b] * factor);
    for (int c = std::max(1, code - kBelow); c <= std::min(kGreatestCode, code + kAbove); ++c) {
      const float scale = number_of_e4m3(static_cast<std::uint32_t>(c));
      const float error = error_of<E2M1>(x, w, block, scale * factor);
      if (!(error < least_error)) continue;
      least_error = error;
      scales[b] = scale;
    }
  }
}

}  // namespace

void search_scales(const Rounding& rounding, float factor, std::span<const float> x, std::span<const float> importance,
                   std::span<float> scales) {
  const auto count = std::ssize(scales);
  if (rounding.values == Rounding::Values::kInt4)
    return search_int4(x.data(), importance.data(), rounding.block_cols, scales.data(), count);
  search_e2m1(x.data(), importance.data(), rounding.block_cols, factor, scales.data(), count);
}

}  // namespace tessera
