#include "tessera/ops/cuda/cuda_shared_memory.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>

namespace tessera {

Result<std::size_t> most_shared_memory(std::string_view name) {
  int device = 0;
  int bytes = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  if (error == cudaSuccess) return static_cast<std::size_t>(bytes);
  static_cast<void>(cudaGetLastError());  // clears the error, which the next launch would report as its own
  return internal_error(fmt::format("{}: {}", name, cudaGetErrorString(error)));
}

Status allow_shared_memory(const void* kernel, std::size_t bytes, std::string_view name) {
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  if (error == cudaSuccess) return ok_status();
  static_cast<void>(cudaGetLastError());  // clears the error, which the next launch would report as its own
  return internal_error(fmt::format("{} needs {} bytes of shared memory: {}", name, bytes, cudaGetErrorString(error)));
}

Result<int> blocks_per_multiprocessor(const void* kernel, int threads, std::size_t shared_bytes,
                                      std::string_view name) {
  TRY(allow_shared_memory(kernel, shared_bytes, name));
  int blocks = 0;
  const cudaError_t error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, shared_bytes);
  if (error != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return internal_error(fmt::format("{}: {}", name, cudaGetErrorString(error)));
  }
  return std::max(blocks, 1);
}

Result<int> clusters_at_once(const void* kernel, int threads, int cluster, std::size_t shared_bytes,
                             std::string_view name) {
  // Results are kept, because the engine asks thousands of times about a few dozen kernels when it starts.
  static std::mutex mutex;
  static auto* known = new std::map<std::tuple<int, const void*, int, int, std::size_t>, int>;
  int device = 0;
  cudaError_t error = cudaGetDevice(&device);
  const std::tuple key{device, kernel, threads, cluster, shared_bytes};
  const std::lock_guard lock(mutex);
  if (const auto found = known->find(key); error == cudaSuccess && found != known->end()) return found->second;
  TRY(allow_shared_memory(kernel, shared_bytes, name));
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(cluster));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared_bytes;
  config.attrs = &attribute;
  config.numAttrs = 1;
  int clusters = 0;
  if (error == cudaSuccess) error = cudaOccupancyMaxActiveClusters(&clusters, kernel, &config);
  if (error != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return internal_error(fmt::format("{}: {}", name, cudaGetErrorString(error)));
  }
  return known->emplace(key, std::max(clusters, 1)).first->second;
}

}  // namespace tessera
