// Launch shapes of row-wise kernels: a thread takes one item (one element, or a pack of neighbours) of one row.
// Short rows share a block, long ones have several.
//
//   const LaunchShape shape = row_shape(rows, items);   // at bind
//   launch(silu_mul<T, N>, shape, stream, x, y, rows, items);
//   // in the kernel:
//   const std::int64_t row = row_of_thread();
//   if (row >= rows) return;
//   for (std::int64_t i = item_of_thread(); i < items; i += item_step()) …
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <bit>
#include <cstdint>

namespace tessera::cuda {

inline constexpr std::int64_t kBlockThreads = 256;
inline constexpr std::int64_t kMaxGridY = 65535;  // x takes 2^31 - 1 blocks

struct LaunchShape {
  dim3 grid{0, 1, 1};  // x = 0: there is nothing to do
  dim3 block{1, 1, 1};
  unsigned cluster = 1;  // neighbouring blocks along x that see each other's shared memory; above 1 on Hopper only
};

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Rows along x, items along y and within a block.
inline LaunchShape row_shape(std::int64_t rows, std::int64_t items) {
  if (rows == 0 || items == 0) return {};
  const auto wanted = std::bit_ceil(static_cast<std::uint64_t>(items));
  const std::int64_t across = std::min(kBlockThreads, static_cast<std::int64_t>(wanted));
  const std::int64_t down = kBlockThreads / across;
  return {.grid = dim3(static_cast<unsigned>(ceil_div(rows, down)),
                       static_cast<unsigned>(std::min(kMaxGridY, ceil_div(items, across)))),
          .block = dim3(static_cast<unsigned>(across), static_cast<unsigned>(down))};
}

// One row of any length, along x: item = flat_item().
inline LaunchShape flat_shape(std::int64_t items) {
  return {.grid = dim3(static_cast<unsigned>(ceil_div(items, kBlockThreads))), .block = dim3(kBlockThreads)};
}

__device__ inline std::int64_t row_of_thread() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
}
__device__ inline std::int64_t item_of_thread() {
  return static_cast<std::int64_t>(blockIdx.y) * blockDim.x + threadIdx.x;
}
__device__ inline std::int64_t item_step() { return static_cast<std::int64_t>(gridDim.y) * blockDim.x; }
__device__ inline std::int64_t flat_item() { return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }

// A launch error is kept by the runtime; the CudaOp that called finds it there.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), const LaunchShape& shape, cudaStream_t stream,
            const Arguments&... arguments) {
  if (shape.grid.x == 0) return;
  if (shape.cluster == 1) {
    kernel<<<shape.grid, shape.block, 0, stream>>>(arguments...);
    return;
  }
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {shape.cluster, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.stream = stream;
  config.attrs = &cluster;
  config.numAttrs = 1;
  static_cast<void>(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...));
}

}  // namespace tessera::cuda
