// The parts of an RMS norm (norm.h), shared by the norms and the operators that contain one.
#pragma once

#include <cstdint>

#include "tessera/ops/contract/norm_form.h"
#include "tessera/ops/cuda/cuda_math.cuh"

namespace tessera::cuda {

template <class T, int N>
__device__ inline float sum_of_squares(const Pack<T, N>& values) {
  float sum = 0;
#pragma unroll
  for (int j = 0; j < N; ++j) sum += to_float(values.at[j]) * to_float(values.at[j]);
  return sum;
}

// Returns T(x + residual).
template <class T, int N>
__device__ inline Pack<T, N> added(const Pack<T, N>& x, const Pack<T, N>& residual) {
  float sum[N];
#pragma unroll
  for (int j = 0; j < N; ++j) sum[j] = to_float(x.at[j]) + to_float(residual.at[j]);
  return pack_of<T>(sum);
}

// Returns, in each thread of a row, the sum over the row's blockDim.x threads. blockDim.x is either a power of two up
// to 32, so that a row's threads are neighbouring lanes of one warp, or a multiple of 32. With more than 32 threads a
// block has a single row. `scratch` is shared memory for 32 floats.
__device__ inline float row_sum(float x, float* scratch) {
  return blockDim.x <= kWarp ? warp_sum(x, static_cast<int>(blockDim.x)) : block_sum(x, scratch);
}

// Returns 1/√(mean + eps), where `squares` is the sum of n squares.
__device__ inline float rms_scale(float squares, std::int64_t n, float eps) {
  return 1.0f / sqrtf(squares / static_cast<float>(n) + eps);
}

// Returns T(values · scale) · w, values · scale · w or values · scale · (1 + w), depending on `form`, rounded to T.
template <class T, int N>
__device__ inline Pack<T, N> normalised(const Pack<T, N>& values, const Pack<T, N>& w, float scale, NormForm form) {
  float out[N];
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const float value = to_float(values.at[j]) * scale;
    const float weight = form == NormForm::kUnitOffset ? 1.0f + to_float(w.at[j]) : to_float(w.at[j]);
    out[j] = (form == NormForm::kRoundFirst ? rounded<T>(value) : value) * weight;
  }
  return pack_of<T>(out);
}

}  // namespace tessera::cuda
