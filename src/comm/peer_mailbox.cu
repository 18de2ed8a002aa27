#include <cstddef>
#include <cstdint>

#include "tessera/comm/peer_exchange.h"

namespace tessera::cuda {
namespace {

__global__ void fill_absent(uint4* to, std::int64_t packs) {
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < packs; i += threads)
    to[i] = make_uint4(kAbsent, kAbsent, kAbsent, kAbsent);
}

}  // namespace

cudaError_t clear_mailbox(std::byte* mailbox, std::size_t bytes) {
  fill_absent<<<256, 256>>>(reinterpret_cast<uint4*>(mailbox), static_cast<std::int64_t>(bytes / sizeof(uint4)));
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? cudaDeviceSynchronize() : error;
}

}  // namespace tessera::cuda
