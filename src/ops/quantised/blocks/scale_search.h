// Finds the scale that gives the least weighted squared error if a few numbers are rounded to small integers.
//
// For given integers q, weighted least squares gives the best scale. But the integers depend on the scale too. So the
// search tries scales around the scale that follows from the extremes of the numbers. All sums are in a fixed order, so
// that the result does not depend on the CPU. The order suits vector instructions. Everything is inlined into functions
// that are compiled for several CPUs. The pragma keeps g++ from unrolling loops of sixteen iterations before its
// vectoriser sees them. The unrolling would cost half of the speed.
#pragma once

#include <algorithm>
#include <cmath>

#include "tessera/base/float16.h"

namespace tessera::scale_search {

// Magnitudes below this become zero, because their inverse would not be finite.
inline constexpr float kLeast = 1e-30F;

// Rounds to the nearest integer, ties to even. Precondition: |x| < 2^22.
TESSERA_INLINE float nearest(float x) {
  constexpr float kBase = 0x1.8p23F;
  return (x + kBase) - kBase;
}

TESSERA_INLINE float clamped(float x, float least, float most) {
  const float raised = x < least ? least : x;
  return raised > most ? most : raised;
}

// Returns the sum of `v`. Overwrites `v`.
template <int kCount>
TESSERA_INLINE float sum_of(float* v) {
  for (int half = kCount / 2; half >= 1; half /= 2)
    for (int i = 0; i < half; ++i) v[i] += v[i + half];
  return v[0];
}

template <int kCount>
TESSERA_INLINE float sum_of_products(const float* a, const float* b) {
  float v[kCount];
#pragma GCC unroll 1
  for (int i = 0; i < kCount; ++i) v[i] = a[i] * b[i];
  return sum_of<kCount>(v);
}

// Writes the weights. A number's weight is its magnitude plus the root of the mean square of all numbers, so that small
// numbers count too.
template <int kCount>
TESSERA_INLINE void weigh_by_magnitude(const float* x, float* w) {
  const float mean = std::sqrt(sum_of_products<kCount>(x, x) / kCount);
#pragma GCC unroll 1
  for (int i = 0; i < kCount; ++i) w[i] = mean + std::abs(x[i]);
}

// Writes the squares of the numbers as weights.
template <int kCount>
TESSERA_INLINE void weigh_by_square(const float* x, float* w) {
#pragma GCC unroll 1
  for (int i = 0; i < kCount; ++i) w[i] = x[i] * x[i];
}

// Writes the weights of numbers whose importance is known. `mean_square` is the mean square of all numbers of the
// block.
template <int kCount>
TESSERA_INLINE void weigh_by_importance(const float* x, const float* importance, float mean_square, float* w) {
#pragma GCC unroll 1
  for (int i = 0; i < kCount; ++i) w[i] = importance[i] * std::sqrt(mean_square + x[i] * x[i]);
}

// Returns the number with the greatest magnitude, with its sign. If several numbers have this magnitude, returns the
// first one. Precondition: count >= 1.
TESSERA_INLINE float greatest_of(const float* x, int count) {
  float greatest = x[0];
  float magnitude = std::abs(x[0]);
  for (int i = 1; i < count; ++i) {
    if (std::abs(x[i]) <= magnitude) continue;
    magnitude = std::abs(x[i]);
    greatest = x[i];
  }
  return greatest;
}

// Describes x ≈ scale · q − minimum. Neither the scale nor the minimum is negative.
struct AffineFit {
  float scale = 0;
  float minimum = 0;
};

// Finds the scale and the minimum for integers q from 0 to `most`. Precondition: the weights are positive, or all of x
// is zero.
template <int kCount>
TESSERA_INLINE AffineFit fit_affine(const float* x, const float* w, float most) {
  constexpr int kSteps = 20;
  constexpr float kStep = 0.1F;
  constexpr float kLeastDeterminant = 1e-5F;  // relative to the first product in `determinant`
  float least = 0;
  float greatest = 0;
#pragma GCC unroll 1
  for (int i = 0; i < kCount; ++i) {
    least = x[i] < least ? x[i] : least;
    greatest = x[i] > greatest ? x[i] : greatest;
  }
  const float range = greatest - least;
  if (range < kLeast) return {};
  float wx[kCount];
  float terms[kCount];
#pragma GCC unroll 1
  for (int i = 0; i < kCount; ++i) wx[i] = w[i] * x[i];
#pragma GCC unroll 1
  for (int i = 0; i < kCount; ++i) terms[i] = w[i];
  const float sum_w = sum_of<kCount>(terms);
#pragma GCC unroll 1
  for (int i = 0; i < kCount; ++i) terms[i] = wx[i];
  const float sum_wx = sum_of<kCount>(terms);
  const auto error_of = [&](const AffineFit& fit, const float* q) {
#pragma GCC unroll 1
    for (int i = 0; i < kCount; ++i) {
      const float difference = fit.scale * q[i] - fit.minimum - x[i];
      terms[i] = w[i] * difference * difference;
    }
    return sum_of<kCount>(terms);
  };
  // The search begins with the fit that the extremes give, and keeps it if no least-squares fit is better. If one
  // weight exceeds all others by far, a least-squares fit is imprecise, because its determinant loses digits by
  // cancellation.
  AffineFit best{.scale = range / most, .minimum = -least};
  float first[kCount];
#pragma GCC unroll 1
  for (int i = 0; i < kCount; ++i) first[i] = clamped(nearest(most / range * (x[i] - least)), 0, most);
  float best_error = error_of(best, first);
  for (int step = 0; step <= kSteps; ++step) {
    const float inverse = (most - 1.0F + kStep * static_cast<float>(step)) / range;
    float q[kCount];
    float wq[kCount];
#pragma GCC unroll 1
    for (int i = 0; i < kCount; ++i) {
      q[i] = clamped(nearest(inverse * (x[i] - least)), 0, most);
      wq[i] = w[i] * q[i];
    }
    const float sum_wqq = sum_of_products<kCount>(wq, q);
    const float sum_wxq = sum_of_products<kCount>(wx, q);
    const float sum_wq = sum_of<kCount>(wq);
    const float determinant = sum_w * sum_wqq - sum_wq * sum_wq;
    if (!(determinant > kLeastDeterminant * sum_w * sum_wqq)) continue;
    AffineFit fit{.scale = (sum_w * sum_wxq - sum_wx * sum_wq) / determinant,
                  .minimum = (sum_wq * sum_wxq - sum_wqq * sum_wx) / determinant};
    if (fit.minimum < 0) fit = {.scale = sum_wxq / sum_wqq, .minimum = 0};
    const float error = error_of(fit, q);
    if (fit.scale < 0 || !(error < best_error)) continue;
    best = fit;
    best_error = error;
  }
  return best;
}

// The integers from −half to half − 1.
struct SignedIntegers {
  float half;
  TESSERA_INLINE float greatest() const { return -half; }  // the integer of the greatest magnitude
  TESSERA_INLINE float nearest_to(float x) const { return clamped(nearest(x), -half, half - 1.0F); }
};

// Returns the scale for x ≈ scale · q with q from `numbers`. The scale may be negative, and is 0 if all of x is 0.
template <int kCount, class Numbers>
TESSERA_INLINE float fit_scale(const float* x, const float* w, const Numbers& numbers, float step, int steps) {
  const float greatest = greatest_of(x, kCount);
  if (std::abs(greatest) < kLeast) return 0;
  float wx[kCount];
#pragma GCC unroll 1
  for (int i = 0; i < kCount; ++i) wx[i] = w[i] * x[i];
  float best = greatest / numbers.greatest();
  float best_gain = 0;
  for (int t = -steps; t <= steps; ++t) {
    const float inverse = (numbers.greatest() + step * static_cast<float>(t)) / greatest;
    float q[kCount];
    float wq[kCount];
#pragma GCC unroll 1
    for (int i = 0; i < kCount; ++i) {
      q[i] = numbers.nearest_to(inverse * x[i]);
      wq[i] = w[i] * q[i];
    }
    const float sum_wqq = sum_of_products<kCount>(wq, q);
    const float sum_wxq = sum_of_products<kCount>(wx, q);
    // With the best scale for these integers, the weighted squared error is Σ w x² − gain.
    const float gain = sum_wxq * sum_wxq / sum_wqq;
    if (!(sum_wqq > 0) || !(gain > best_gain)) continue;
    best = sum_wxq / sum_wqq;
    best_gain = gain;
  }
  return best;
}

}  // namespace tessera::scale_search
