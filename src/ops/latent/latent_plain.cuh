// Computes latent attention on CUDA for sizes and types that the tensor-core kernel does not support, and merges
// split-KV partial results.
#pragma once

#include "tessera/ops/cuda/online_softmax.cuh"
#include "tessera/ops/latent/latent_attention.cuh"

namespace tessera::latent {

inline constexpr int kPlainKeys = 16;  // keys in a tile
inline constexpr int kPlainColumns = 32;
inline constexpr std::int64_t kGreatestWidth = kPlainColumns * kWarp;

// Computes attention without tensor cores. A warp computes one query head of a token. The eight warps of a block share
// tiles of keys in shared memory. All arithmetic is float32. A lane has the columns lane, lane + 32, …. gridDim.x
// counts rows, gridDim.y counts blocks of heads, and gridDim.z counts ranges of keys.
template <class X>
__global__ void __launch_bounds__(kWarps* kWarp) latent_heads(const Problem p, int latent) {
  extern __shared__ __align__(16) float shared_floats[];
  const int width = p.head_dim;
  float* const q = shared_floats;          // [kWarps, width]
  float* const keys = q + kWarps * width;  // [kPlainKeys, width]
  cuda::let_next_begin();
  cuda::wait_for_previous();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int split = static_cast<int>(blockIdx.z);
  // Finds the token's request.
  const int token = static_cast<int>(blockIdx.x);
  int n = min(*p.num_requests, p.max_requests);
  while (n > 0 && p.query_starts[n] > p.num_rows) --n;
  if (n == 0 || token >= p.query_starts[n]) return;
  int low = 0;
  int high = n;  // the request is in [low, high)
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (p.query_starts[middle] <= token ? low : high) = middle;
  }
  const int query_len = p.query_starts[low + 1] - p.query_starts[low];
  const int in_request = token - p.query_starts[low];
  const Rows rows{.request = low,
                  .query_start = p.query_starts[low],
                  .row_begin = in_request * p.heads,
                  .rows = p.heads,
                  .offset = p.kv_lens[low] - query_len};
  const Keys range = keys_of(p, rows, split, kPlainKeys);
  const int head = static_cast<int>(blockIdx.y) * kWarps + warp;
  const bool real = head < p.heads;
  for (int d = lane; d < width; d += kWarp)
    q[warp * width + d] =
        real ? to_float(static_cast<const X*>(p.q)[(static_cast<std::int64_t>(token) * p.heads + head) * width + d]) *
                   p.scale
             : 0.0f;

  const int* pages = p.page_table + static_cast<std::int64_t>(low) * p.max_pages;
  float sum[kPlainColumns] = {};
  cuda::OnlineSoftmax<cuda::BaseE> row;
  for (int first = range.begin; first < range.end; first += kPlainKeys) {
    const int count = min(kPlainKeys, range.end - first);
    __syncthreads();
    own_attention::with_type(p.cache_dtype, [&]<class Y>() {
      for (int i = warp; i < count; i += kWarps) {
        const int key = first + i;
        const std::int64_t slot = static_cast<std::int64_t>(pages[key / p.page_size]) * p.page_size + key % p.page_size;
        for (int d = lane; d < width; d += kWarp)
          keys[i * width + d] = to_float(static_cast<const Y*>(p.k_cache)[slot * width + d]);
      }
    });
    __syncthreads();
    for (int i = 0; i < count; ++i) {
      float score = 0;
      for (int d = lane; d < width; d += kWarp) score = fmaf(q[warp * width + d], keys[i * width + d], score);
      score = cuda::warp_sum(score);
      const float shrink = row.raise(fmaxf(row.running_max, score));
      const float weight = row.weight(score);
      row.sum += weight;
#pragma unroll
      for (int j = 0; j < kPlainColumns; ++j) {
        const int d = lane + kWarp * j;
        if (d < latent) sum[j] = fmaf(sum[j], shrink, weight * keys[i * width + d]);
      }
    }
  }
  if (!real) return;
  const Target target = target_of(p, rows, head, split);
  const float inverse = row.inverse();
  if (target.partial && lane == 0)
    p.partial_lse[target.at] = row.sum > 0 ? row.running_max * 1.44269504088896f + log2f(row.sum) : -INFINITY;
#pragma unroll
  for (int j = 0; j < kPlainColumns; ++j) {
    const int d = lane + kWarp * j;
    if (d >= latent) continue;
    if (target.partial)
      p.partial_values[target.at * latent + d] = sum[j] * inverse;
    else
      static_cast<X*>(p.out)[target.at * latent + d] = from_float<X>(sum[j] * inverse);
  }
}

inline constexpr int kJoinWarps = 4;
inline constexpr int kJoinColumns = kWarp * 4;  // columns of a block: one float4 for each lane

// Merges the split-KV partial results of a row. A range in which the row sees no key has no values, and is skipped.
// Each warp processes every kJoinWarps-th range. gridDim.x counts heads, gridDim.y counts rows, and gridDim.z counts
// parts of the columns.
template <class X>
__global__ void __launch_bounds__(kJoinWarps* kWarp) join_ranges(const Problem p, int latent) {
  __shared__ float4 sums[kJoinWarps][kWarp];
  __shared__ float totals[kJoinWarps];
  cuda::let_next_begin();
  cuda::wait_for_previous();
  const std::int64_t token = blockIdx.y;
  int n = min(*p.num_requests, p.max_requests);
  while (n > 0 && p.query_starts[n] > p.num_rows) --n;
  if (n == 0 || token >= p.query_starts[n]) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int first = static_cast<int>(blockIdx.z) * kJoinColumns + lane * 4;
  const auto part = [&](int split) { return (token * p.splits + split) * p.heads + blockIdx.x; };
  float most = -INFINITY;
  for (int split = lane; split < p.splits; split += kWarp) most = fmaxf(most, p.partial_lse[part(split)]);
  most = cuda::warp_max(most);
  float4 sum = make_float4(0, 0, 0, 0);
  float total = 0;
#pragma unroll 8
  for (int split = warp; split < p.splits; split += kJoinWarps) {
    const float lse = p.partial_lse[part(split)];
    if (lse == -INFINITY) continue;
    const float weight = cuda::part_weight<cuda::BaseTwo>(lse, most);
    total += weight;
    float x[4] = {};
    if (latent % 4 == 0 && first < latent) {
      *reinterpret_cast<float4*>(x) = *reinterpret_cast<const float4*>(p.partial_values + part(split) * latent + first);
    } else {
      for (int i = 0; i < 4; ++i)
        if (first + i < latent) x[i] = p.partial_values[part(split) * latent + first + i];
    }
    sum = make_float4(fmaf(weight, x[0], sum.x), fmaf(weight, x[1], sum.y), fmaf(weight, x[2], sum.z),
                      fmaf(weight, x[3], sum.w));
  }
  sums[warp][lane] = sum;
  if (lane == 0) totals[warp] = total;
  __syncthreads();
  const int column = static_cast<int>(blockIdx.z) * kJoinColumns + static_cast<int>(threadIdx.x);
  if (column >= latent) return;
  float value = 0;
  float weights = 0;
#pragma unroll
  for (int w = 0; w < kJoinWarps; ++w) {
    value += reinterpret_cast<const float*>(sums[w])[threadIdx.x];
    weights += totals[w];
  }
  static_cast<X*>(p.out)[(token * p.heads + blockIdx.x) * latent + column] = from_float<X>(value / weights);
}
static_assert(kJoinWarps * kWarp == kJoinColumns, "a thread has a column of the joined row");

}  // namespace tessera::latent
