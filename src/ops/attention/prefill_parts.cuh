// Merges the results of the parts of a tile (TileWork::parts) in prefill attention. Each warp merges its own rows. The
// warp writes its sums to device memory and increments a counter, which shows whether this part is the last to end. In
// this case the warp adds the sums of all parts, in the order of the parts. The result therefore does not depend on
// which part ends last.
#pragma once

#include "tessera/ops/attention/prefill_attention.cuh"
#include "tessera/ops/cuda/async_copy.cuh"
#include "tessera/ops/cuda/online_softmax.cuh"

namespace tessera::cuda::prefill {

// A thread's results of one part.
template <class S, class T>
struct PartResults {
  static constexpr int kThreads = kWarpgroups * kWarpgroup;

  const Attention<T>& p;
  const Work& w;
  int rank = static_cast<int>(block_in_cluster());

  __device__ float4* of(int part) const {
    const std::int64_t block = static_cast<std::int64_t>(w.first_part + part) * kCluster + rank;
    return p.part_results + block * S::kPartChunks * kThreads + threadIdx.x;
  }
  // Returns the running max of each of the thread's two rows, then the sum of weights of each of these rows.
  __device__ float4 state_of(int part) const { return __ldcg(of(part) + (S::kPartChunks - 1) * kThreads); }
  __device__ std::int32_t* arrivals() const {
    return p.arrivals + (w.first_part * kCluster + rank) * (kThreads / kWarp) + threadIdx.x / kWarp;
  }
};

// If the work item is a part, merges the sums out[kFirst … kFirst + kSums - 1], the rows' running max and the rows'
// sums of weights with those of the other parts. Returns true if the warp has the results of all keys. If the function
// returns false, `out` and `rows` must not be used. The factor of scores is `scale_log2`. All threads of the warp call
// the function.
template <class S, int kFirst, int kSums, class T>
__device__ inline bool merge_parts(const Attention<T>& p, const Work& w, float (&out)[S::kHeadDim / 2],
                                   OnlineSoftmax<FastBaseTwo> (&rows)[2], float scale_log2) {
  if (w.parts == 1) return true;
  const PartResults<S, T> results{p, w};
  constexpr int kStep = PartResults<S, T>::kThreads;
  float* const sums = &out[kFirst];
  float4* const mine = results.of(w.part);
#pragma unroll
  for (int i = 0; i < kSums; i += 4)
    __stcg(mine + i / 4 * kStep, make_float4(sums[i], sums[i + 1], sums[i + 2], sums[i + 3]));
  __stcg(mine + (S::kPartChunks - 1) * kStep,
         make_float4(rows[0].running_max, rows[1].running_max, rows[0].sum, rows[1].sum));
  __threadfence();
  __syncwarp();
  const bool counts = threadIdx.x % kWarp == 0;
  const int before = __shfl_sync(~0U, counts ? atomicAdd(results.arrivals(), 1) : 0, 0);
  if (before + 1 < w.parts) return false;
  if (counts) *results.arrivals() = 0;
  __threadfence();

  float most[2] = {-1e30F, -1e30F};
#pragma unroll 1
  for (int part = 0; part < w.parts; ++part) {
    const float4 state = results.state_of(part);
    most[0] = fmaxf(most[0], state.x);
    most[1] = fmaxf(most[1], state.y);
  }
#pragma unroll
  for (int i = 0; i < kSums; ++i) sums[i] = 0;
  rows[0] = {most[0], 0};
  rows[1] = {most[1], 0};
#pragma unroll 1
  for (int part = 0; part < w.parts; ++part) {
    const float4 state = results.state_of(part);
    const float worth[2] = {part_weight<FastBaseTwo>(state.x, most[0], scale_log2),
                            part_weight<FastBaseTwo>(state.y, most[1], scale_log2)};
    rows[0].sum += state.z * worth[0];
    rows[1].sum += state.w * worth[1];
#pragma unroll
    for (int i = 0; i < kSums; i += 4) {
      const float4 x = __ldcg(results.of(part) + i / 4 * kStep);
      sums[i] += x.x * worth[0];
      sums[i + 1] += x.y * worth[0];
      sums[i + 2] += x.z * worth[1];
      sums[i + 3] += x.w * worth[1];
    }
  }
  return true;
}

}  // namespace tessera::cuda::prefill
