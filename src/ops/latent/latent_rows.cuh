// The last step of latent attention for a few rows on CUDA. It merges a row's partial results, one for each range of
// keys, and multiplies the merged latent by the head's value up-projection matrix. If the matrix is a weight, no kernel
// writes it, so each block loads its part of the matrix before the preceding kernels have ended.
#pragma once

#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/cuda/online_softmax.cuh"
#include "tessera/ops/latent/latent_attention.cuh"

namespace tessera::latent {

inline constexpr int kValueWarps = 4;
inline constexpr int kValuesOfWarp = 4;
inline constexpr int kValuesOfBlock = kValueWarps * kValuesOfWarp;

// Merges a row's split-KV partial results and multiplies the merged latent by the head's value up-projection matrix.
// gridDim.x counts parts of a head's values, gridDim.y counts heads, and gridDim.z counts rows. A warp has
// kValuesOfWarp rows of the matrix, and its lanes divide the latent's columns. `values` is X[heads, value_dim,
// kLatent]. `may_be_early` means that no kernel writes `values`. In this case join_values() loads them before it waits
// for the preceding kernels.
template <class X>
__global__ void __launch_bounds__(kValueWarps* kWarp)
    join_values(const Problem p, const X* values, int value_dim, bool may_be_early) {
  constexpr int kLanePacks = kLatent / kPack / kWarp;
  constexpr int kSplitsOfLane = kMostSplits / kWarp;
  static_assert(kValueWarps * kWarp * 4 == kLatent, "a thread joins four columns");
  __shared__ float4 joined[kLatent / 4];
  cuda::let_next_begin();
  if (!may_be_early) cuda::wait_for_previous();
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarp;
  const int first_value = static_cast<int>(blockIdx.x) * kValuesOfBlock + thread / kWarp * kValuesOfWarp;
  const int head = static_cast<int>(blockIdx.y);
  const std::int64_t token = blockIdx.z;
  Pack<X, kPack> weights[kValuesOfWarp][kLanePacks];
#pragma unroll
  for (int n = 0; n < kValuesOfWarp; ++n)
#pragma unroll
    for (int i = 0; i < kLanePacks; ++i)
      weights[n][i] =
          cuda::load_pack<X, kPack>(values + (static_cast<std::int64_t>(head) * value_dim + first_value + n) * kLatent +
                                    (i * kWarp + lane) * kPack);
  if (may_be_early) cuda::wait_for_previous();

  int n = min(*p.num_requests, p.max_requests);
  while (n > 0 && p.query_starts[n] > p.num_rows) --n;
  if (n == 0 || token >= p.query_starts[n]) return;
  const auto part = [&](int split) { return (token * p.splits + split) * p.heads + head; };
  // A row sees only keys of the first `seen` ranges. The other ranges have no values.
  float lse[kSplitsOfLane];
  float most = -INFINITY;
  int seen = 0;
#pragma unroll
  for (int i = 0; i < kSplitsOfLane; ++i) {
    const int split = i * kWarp + lane;
    lse[i] = split < p.splits ? p.partial_lse[part(split)] : -INFINITY;
    most = fmaxf(most, lse[i]);
    seen += __popc(__ballot_sync(0xffffffffu, lse[i] != -INFINITY));
  }
  most = cuda::warp_max(most);
  float total = 0;
#pragma unroll
  for (int i = 0; i < kSplitsOfLane; ++i) {
    lse[i] = cuda::part_weight<cuda::BaseTwo>(lse[i], most);  // lse[i] holds the range's weight from here on
    total += lse[i];
  }
  total = cuda::warp_sum(total);
  float4 sum = make_float4(0, 0, 0, 0);
  constexpr int kTogether = 16;  // number of ranges whose values are loaded at the same time
#pragma unroll
  for (int i = 0; i < kMostSplits; i += kTogether) {
    if (i >= seen) break;
    float4 x[kTogether];
#pragma unroll
    for (int j = 0; j < kTogether; ++j)
      x[j] = i + j < seen ? *reinterpret_cast<const float4*>(p.partial_values + part(i + j) * kLatent + thread * 4)
                          : make_float4(0, 0, 0, 0);
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      const float weight = __shfl_sync(0xffffffffu, lse[i / kWarp], (i + j) % kWarp);
      sum = make_float4(fmaf(weight, x[j].x, sum.x), fmaf(weight, x[j].y, sum.y), fmaf(weight, x[j].z, sum.z),
                        fmaf(weight, x[j].w, sum.w));
    }
  }
  const float inverse = 1.0f / total;
  joined[thread] = make_float4(sum.x * inverse, sum.y * inverse, sum.z * inverse, sum.w * inverse);
  __syncthreads();
  float products[kValuesOfWarp] = {};
#pragma unroll
  for (int i = 0; i < kLanePacks; ++i) {
    float own[kPack];
#pragma unroll
    for (int j = 0; j < kPack; j += 4) {
      const float4 four = joined[((i * kWarp + lane) * kPack + j) / 4];
      own[j] = four.x;
      own[j + 1] = four.y;
      own[j + 2] = four.z;
      own[j + 3] = four.w;
    }
#pragma unroll
    for (int n = 0; n < kValuesOfWarp; ++n)
#pragma unroll
      for (int j = 0; j < kPack; ++j) products[n] = fmaf(own[j], to_float(weights[n][i].at[j]), products[n]);
  }
#pragma unroll
  for (int n = 0; n < kValuesOfWarp; ++n) products[n] = cuda::warp_sum(products[n]);
  X* const out = static_cast<X*>(p.out) + (token * p.heads + head) * value_dim + first_value;
#pragma unroll
  for (int n = 0; n < kValuesOfWarp; ++n)
    if (lane == n) out[n] = from_float<X>(products[n]);
}

}  // namespace tessera::latent
