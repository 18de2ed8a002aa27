#include "tessera/ops/cuda/clear_memory.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

namespace tessera {

Status clear_memory(std::byte* memory, std::size_t bytes, std::string_view name) {
  // The memset may end after cudaMemset has returned, and the engine's streams do not wait for the default stream. So
  // this function waits for the default stream.
  cudaError_t error = cudaMemset(memory, 0, bytes);
  if (error == cudaSuccess) error = cudaStreamSynchronize(cudaStreamLegacy);
  if (error == cudaSuccess) return ok_status();
  static_cast<void>(cudaGetLastError());  // clears the error, which the next launch would report as its own
  return internal_error(fmt::format("{}: cudaMemset of {} bytes: {}", name, bytes, cudaGetErrorString(error)));
}

}  // namespace tessera
