// The last step of moe_experts on CUDA. It multiplies each token's rows by their weights and adds them up.
#pragma once

#include "tessera/ops/moe/moe_experts.cuh"

namespace tessera::cuda::moe {

// Computes y[t] = Σ_k weights[t, k] · x[place of (t, k)], in the order of k. If `place` is null, the place of (t, k) is
// t · top_k + k.
template <class T, int N>
__global__ void add_up(const T* x, const std::int32_t* ids, const int* place, const float* weights, T* y,
                       std::int64_t tokens, std::int64_t packs, int top_k, int experts) {
  let_next_begin();
  wait_for_previous();
  const std::int64_t token = row_of_thread();
  if (token >= tokens) return;
  for (std::int64_t i = item_of_thread(); i < packs; i += item_step()) {
    float sum[N] = {};
    for (int k = 0; k < top_k; ++k) {
      const std::int64_t pair = token * top_k + k;
      const std::int32_t id = ids[pair];
      if (id < 0 || id >= experts) continue;
      const std::int64_t row = place == nullptr ? pair : place[pair];
      const Pack<T, N> values = load_pack<T, N>(x + (row * packs + i) * N);
#pragma unroll
      for (int j = 0; j < N; ++j) sum[j] += weights[pair] * to_float(values.at[j]);
    }
    Pack<T, N> out;
#pragma unroll
    for (int j = 0; j < N; ++j) out.at[j] = from_float<T>(sum[j]);
    store_pack(y + (token * packs + i) * N, out);
  }
}

}  // namespace tessera::cuda::moe
