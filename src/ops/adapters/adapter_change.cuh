// The change that adapters make to a linear's values, for kernels of linears that add it themselves. A linear's value
// is rounded before the change is added, as adapter_add does.
#pragma once

#include <cstdint>

#include "tessera/ops/adapters/adapter_linear.h"
#include "tessera/ops/cuda/cuda_math.cuh"

namespace tessera::cuda {

// No adapters.
struct NoChange {
  __device__ void prefetch(int, int, int) const {}
  __device__ float at(int, int) const { return 0; }
  __device__ static float changed(float y, float) { return y; }
};

// Returns the module of a column.
__device__ inline std::int32_t module_of(const AdapterRanges& ranges, std::int64_t column) {
  std::int32_t i = 0;
  while (i + 1 < ranges.count && column >= ranges.ends[i]) ++i;
  return ranges.modules[i];
}

template <class T>
struct AdapterChange {
  AdapterAddArgs in;

  // Brings what a tile of `columns` columns from `first` on needs of b to the L2 cache. Rows of b are shared out to
  // `lane` of 16 lanes. May run before the kernels ahead have ended.
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

  // Returns the change of the row's adapter to a column; 0 without one.
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
