// Rotates the last elements of a head of latent attention, on CUDA (rotary.h has the formula).
#pragma once

#include "tessera/ops/cuda/cuda_rotary.cuh"

namespace tessera::cuda {

// Stores a value of type X, converted to the storage type To.
template <class X, class To>
__device__ inline void store_as(To* to, X value) {
  *to = from_float<To>(to_float(value));
}

// Rotates pair i of the `half` pairs in x, and stores the result in y. `angles` is a row of the table: `half` cosines,
// then `half` sines.
template <class X, class To>
__device__ inline void turn(const X* x, const float* angles, To* y, int i, int half, bool interleaved) {
  const int first = interleaved ? 2 * i : i;
  const int second = interleaved ? 2 * i + 1 : i + half;
  X a = x[first];
  X b = x[second];
  rotate(a, b, angles[i], angles[half + i]);
  store_as(y + first, a);
  store_as(y + second, b);
}

}  // namespace tessera::cuda
