// Attention of a row from its parts: each part attended to a range of the row's keys.
#pragma once

#include "tessera/ops/cuda_math.cuh"

namespace tessera::cuda {

// The rows that a forward of `bucket_rows` has: those of real requests that fit.
__device__ inline int count_real_rows(const int* num_requests, const int* query_starts, int bucket_rows) {
  int n = *num_requests;
  while (n > 0 && query_starts[n] > bucket_rows) --n;
  return n > 0 ? query_starts[n] : 0;
}

// Parts of row r: r · parts_per_row and on, or part_starts[r] … part_starts[r + 1] - 1 where part_starts is given; a
// row of padding has none. Without part_starts, the metadata tells how many rows are real. values Part[parts, heads,
// head_dim], lse [parts, heads]: log2 of the part's Σ exp, -inf where it has no key.
struct MergeStates {
  const void* values;
  const float* lse;
  const int* part_starts;
  int parts_per_row;
  const int* num_requests;
  const int* query_starts;
  void* out;  // X[rows, heads, head_dim]
  int rows;
  int heads;
  int head_dim;
};

// Grid [heads, rows]; a thread for each element of the head, or for several.
template <class Part, class X>
__global__ void merge_states(const MergeStates m) {
  const int head = static_cast<int>(blockIdx.x);
  const int row = static_cast<int>(blockIdx.y);
  int begin = row * m.parts_per_row;
  int end = begin + m.parts_per_row;
  if (m.part_starts != nullptr) {
    begin = m.part_starts[row];
    end = m.part_starts[row + 1];
    if (begin == end) return;  // padding
  } else if (row >= count_real_rows(m.num_requests, m.query_starts, m.rows)) {
    return;
  }

  const auto lse_at = [&](int part) { return m.lse[static_cast<long>(part) * m.heads + head]; };
  float greatest = -INFINITY;
  for (int part = begin; part < end; ++part) greatest = fmaxf(greatest, lse_at(part));
  float total = 0;
  for (int part = begin; part < end; ++part) total += exp2f(lse_at(part) - greatest);

  const auto* values = static_cast<const Part*>(m.values);
  X* out = static_cast<X*>(m.out) + (static_cast<long>(row) * m.heads + head) * m.head_dim;
  for (int d = static_cast<int>(threadIdx.x); d < m.head_dim; d += static_cast<int>(blockDim.x)) {
    float sum = 0;
#pragma unroll 4
    for (int part = begin; part < end; ++part) {
      const float weight = exp2f(lse_at(part) - greatest);
      // A part without keys may hold anything.
      if (weight > 0) sum += weight * to_float(values[(static_cast<long>(part) * m.heads + head) * m.head_dim + d]);
    }
    out[d] = from_float<X>(sum / total);
  }
}

template <class Part, class X>
inline void launch_merge_states(const MergeStates& m, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(m.heads), static_cast<unsigned>(m.rows));
  const int threads = m.head_dim < 128 ? (m.head_dim + kWarp - 1) / kWarp * kWarp : 128;
  merge_states<Part, X><<<grid, static_cast<unsigned>(threads), 0, stream>>>(m);
}

}  // namespace tessera::cuda
