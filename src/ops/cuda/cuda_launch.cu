#include "tessera/ops/cuda/cuda_launch.cuh"

#include <array>
#include <atomic>

namespace tessera::cuda {
namespace {

// An empty kernel. It is compiled for the same architectures as the other kernels, so its ptxVersion says which of
// these architectures' code the current device runs.
__global__ void probe() {}

bool find_out() {
  cudaFuncAttributes code{};
  if (cudaFuncGetAttributes(&code, reinterpret_cast<const void*>(probe)) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());  // clears the error, because the following launch reports the failure
    return false;
  }
  return code.ptxVersion >= 90;
}

}  // namespace

bool can_launch_early() {
  enum : signed char { kUnknown, kNo, kYes };
  static std::array<std::atomic<signed char>, 64> known{};  // indexed by the device's number
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess || device < 0 || device >= static_cast<int>(known.size())) return false;
  std::atomic<signed char>& answer = known[static_cast<std::size_t>(device)];
  if (answer.load(std::memory_order_relaxed) == kUnknown)
    answer.store(find_out() ? kYes : kNo, std::memory_order_relaxed);
  return answer.load(std::memory_order_relaxed) == kYes;
}

}  // namespace tessera::cuda
