// Computes launch shapes for row-wise kernels, and launches kernels before the preceding kernel has ended. A thread
// processes one item (one element, or a pack of neighbours) of one row. Short rows share a block, and a long row has
// several blocks.
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
#include <cstddef>
#include <cstdint>

#include "tessera/base/ceil_div.h"

namespace tessera::cuda {

inline constexpr std::int64_t kBlockThreads = 256;
inline constexpr std::int64_t kMaxGridY = 65535;  // CUDA's limit; the limit of grid.x is 2^31 - 1

struct LaunchShape {
  dim3 grid{0, 1, 1};  // if grid.x is 0, there is nothing to launch
  dim3 block{1, 1, 1};
  unsigned cluster = 1;  // number of blocks along x that can access each other's shared memory; above 1 only on
                         // Hopper
};

// Returns the launch shape for rows of `items` items. grid.x and block.y count rows. grid.y and block.x count items.
inline LaunchShape row_shape(std::int64_t rows, std::int64_t items) {
  if (rows == 0 || items == 0) return {};
  const auto wanted = std::bit_ceil(static_cast<std::uint64_t>(items));
  const std::int64_t across = std::min(kBlockThreads, static_cast<std::int64_t>(wanted));
  const std::int64_t down = kBlockThreads / across;
  return {.grid = dim3(static_cast<unsigned>(ceil_div(rows, down)),
                       static_cast<unsigned>(std::min(kMaxGridY, ceil_div(items, across)))),
          .block = dim3(static_cast<unsigned>(across), static_cast<unsigned>(down))};
}

// Returns the launch shape for a single row of any length. grid.x and block.x count items, and flat_item() is the
// thread's item.
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

// A kernel that is launched with launch_early() begins with let_next_begin() and wait_for_previous(). On Hopper and
// newer, its blocks may start while earlier kernels of the stream still run (CUDA's programmatic dependent launch).
//
// Two rules hold. First, a block must wait before it writes memory, and before it reads memory that other kernels
// write. Second, at least one block of each launch must wait. Because of the second rule, a kernel never ends before
// the kernels ahead of it. So a kernel need only wait for the kernel directly before it. A kernel's pointers are not
// declared __restrict__. Otherwise the compiler could move loads through these pointers before wait_for_previous().
// Before it waits, a block may read memory that only copies write, because no kernel starts before an earlier copy has
// ended.
//
// let_next_begin() allows the next kernel, if it is launched early, to start its blocks as soon as all blocks of this
// kernel have started.
__device__ inline void let_next_begin() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// Waits until the preceding kernels have ended and their writes are visible.
__device__ inline void wait_for_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Returns whether kernels may be launched early. The current device must support early launches, and it must run code
// that was compiled for Hopper or newer, because only such code contains the wait.
bool can_launch_early();

// Launches a kernel. The function returns no error, because the CUDA runtime keeps a launch error until the calling
// CudaOp reads it.
template <class... Parameters, class... Arguments>
void launch_with(void (*kernel)(Parameters...), const LaunchShape& shape, std::size_t shared_bytes, bool early,
                 cudaStream_t stream, const Arguments&... arguments) {
  if (shape.grid.x == 0) return;
  cudaLaunchAttribute attributes[2] = {};
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  if (shape.cluster > 1) {
    cudaLaunchAttribute& cluster = attributes[config.numAttrs++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {shape.cluster, 1, 1};
  }
  if (early) {
    cudaLaunchAttribute& serialization = attributes[config.numAttrs++];
    serialization.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    serialization.val.programmaticStreamSerializationAllowed = 1;
  }
  static_cast<void>(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...));
}

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), const LaunchShape& shape, cudaStream_t stream,
            const Arguments&... arguments) {
  launch_with(kernel, shape, 0, /*early=*/false, stream, arguments...);
}
// Launches a kernel early. Precondition: the kernel calls wait_for_previous().
template <class... Parameters, class... Arguments>
void launch_early(void (*kernel)(Parameters...), const LaunchShape& shape, cudaStream_t stream,
                  const Arguments&... arguments) {
  launch_with(kernel, shape, 0, can_launch_early(), stream, arguments...);
}

}  // namespace tessera::cuda
