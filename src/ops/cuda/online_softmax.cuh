// The online softmax of attention kernels (Milakov and Gimelshein, arXiv:1805.02867). The scores of a row are computed
// in pieces, and all sums so far are rescaled when the row's running max grows. Each kernel has its own main loop, and
// kernels share the arithmetic in this file. A thread has one OnlineSoftmax for each of its rows (or heads).
#pragma once

#include <cuda_runtime.h>

#include "tessera/ops/cuda/cuda_math.cuh"

namespace tessera::cuda {

// The exponential functions that turn scores into weights. For BaseTwo the caller has multiplied the scores by
// log2(e).
struct BaseE {
  __device__ static float power(float x) { return expf(x); }
};
struct BaseTwo {
  __device__ static float power(float x) { return exp2f(x); }
};
// Computes powers of two in one instruction. Subnormal results become zero.
struct FastBaseTwo {
  __device__ static float power(float x) {
    float y = 0;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  }
};

// Returns, in each lane, the maximum over the lane's group of `width` neighbouring lanes. `width` is a power of two up
// to 32.
__device__ inline float warp_max(float x, int width = kWarp) {
  for (int step = width / 2; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(~0U, x, step, kWarp));
  return x;
}

// Returns the maximum over the 4 lanes of a quad. These lanes share a row of a tensor core's result.
__device__ inline float quad_max(float x) { return warp_max(x, 4); }

// Says whether a row may have had no key so far. The running max of such a row is -inf, and the exponential must not
// get -inf - -inf, which is NaN.
enum class Keys : bool { kSome, kMaybeNone };

template <class Base>
struct OnlineSoftmax {
  float running_max = -INFINITY;
  float sum = 0;  // sum of weights, relative to the running max

  // Raises the running max to `now`, which is not below the old running max. Multiplies `sum` by a factor of at most 1,
  // and returns the factor. The caller multiplies its sums of weighted values by the same factor. A difference of two
  // scores is multiplied by `scale` before it is passed to Base::power().
  template <Keys kKeys = Keys::kSome>
  __device__ float raise(float now, float scale = 1) {
    const float factor =
        kKeys == Keys::kMaybeNone && now == -INFINITY ? 1.0f : Base::power((running_max - now) * scale);
    running_max = now;
    sum *= factor;
    return factor;
  }

  // Returns the weight of a score. The caller adds the weights to `sum`.
  template <Keys kKeys = Keys::kSome>
  __device__ float weight(float score) const {
    return kKeys == Keys::kMaybeNone && score == -INFINITY ? 0.0f : Base::power(score - running_max);
  }

  // Returns 1 / sum; 0 for a row that has seen no key.
  __device__ float inverse() const { return sum > 0 ? 1 / sum : 0.0f; }
};

// Returns the factor by which one of a row's partial results is multiplied when they are merged. `running_max` is the
// running max of this partial result, or its log-sum-exp if its values are normalised. `most` is the greatest of these
// numbers over all partial results. A difference of two of these numbers is multiplied by `scale` before it is passed
// to Base::power().
template <class Base, Keys kKeys = Keys::kSome>
__device__ float part_weight(float running_max, float most, float scale = 1) {
  return kKeys == Keys::kMaybeNone && running_max == -INFINITY ? 0.0f : Base::power((running_max - most) * scale);
}

}  // namespace tessera::cuda
