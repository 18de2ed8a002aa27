// Lets the kernel of a linear also add the change of low-rank adapters, so that adapter_add need not run. Like
// adapter_add, the kernel rounds the linear's value before it adds the change.
#pragma once

#include <cstdint>

#include "tessera/ops/adapters/adapter_linear.h"
#include "tessera/ops/cuda/cuda_math.cuh"

namespace tessera::cuda {

// Stands for a linear without adapters. It changes nothing.
struct NoChange {
  __device__ void prefetch(int, int, int) const {}
  __device__ float at(int, int) const { return 0; }
  __device__ static float changed(float y, float) { return y; }
};

// Returns the module that a column of y belongs to.
__device__ inline std::int32_t module_of(const AdapterRanges& ranges, std::int64_t column) {
  std::int32_t i = 0;
  while (i + 1 < ranges.count && column >= ranges.ends[i]) ++i;
  return ranges.modules[i];
}

template <class T>
struct AdapterChange {
  AdapterAddArgs in;

  // Prefetches into the L2 cache the part of b for the columns first … first + columns - 1 of y. Sixteen lanes divide
  // the rows of b among them; `lane` is the caller's number, 0 to 15. May run before the preceding kernels have ended.
  __device__ void prefetch(int first, int columns, int lane) const {
    std::int32_t last_slot = -1;
    for (int row = 0; row < in.rows; ++row) {
      const std::int32_t slot = in.table.slots[row];
      if (slot < 0 || slot == last_slot) continue;
      last_slot = slot;
      const std::int32_t rank = in.ranks[slot * in.modules + module_of(in.ranges, first)];
      for (std::int32_t r = lane; r < rank; r += 16) {
        const T* const from = static_cast<const T*>(in.b) + (std::int64_t{slot} * in.rank + r) * in.cols + first;
        asm volatile("prefetch.global.L2 [%0];" ::"l"(from) : "memory");
        asm volatile("prefetch.global.L2 [%0];" ::"l"(from + columns - 1) : "memory");
      }
    }
  }

  // Returns the value that the row's adapter adds to a column of y; 0 without an adapter.
  __device__ float at(int row, int column) const {
    const std::int32_t slot = in.table.slots[row];
    if (slot < 0) return 0;
    const std::int32_t module = module_of(in.ranges, column);
    const std::int32_t rank = in.ranks[slot * in.modules + module];
    if (rank == 0) return 0;
    const float* const t = in.t + (std::int64_t{row} * in.modules + module) * in.rank;
    const T* const b = static_cast<const T*>(in.b) + std::int64_t{slot} * in.rank * in.cols + column;
    float sum = 0;
#pragma unroll 16
    for (std::int32_t r = 0; r < rank; ++r) sum = fmaf(t[r], to_float(b[r * in.cols]), sum);
    return in.scales[slot * in.modules + module] * sum;
  }
  __device__ static float changed(float y, float change) { return rounded<T>(y) + change; }
};

}  // namespace tessera::cuda
