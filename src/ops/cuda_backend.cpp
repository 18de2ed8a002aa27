// Defines the single symbol that libtessera_cuda.so exports.
#include <cuda_runtime.h>

#include <utility>

#include "tessera/device/cuda/cuda_device.h"
#include "tessera/device/cuda/cuda_stream.h"
#include "tessera/ops/contract/rooms.h"
#include "tessera/ops/device_registry.h"

namespace tessera {
namespace {

const KernelTable& cuda_kernels() {
  static const KernelTable table = [] {
    KernelList list;
    add_linear_cuda(list);
    add_adapters_cuda(list);
    add_rows_cuda(list);
    add_embedding_cuda(list);
    add_attention_cuda(list);
    add_cache_cuda(list);
    add_latent_cuda(list);
    add_recurrent_cuda(list);
    add_moe_cuda(list);
    add_quantised_cuda(list);
    add_vision_cuda(list);
    add_sampling_cuda(list);
    add_collective_cuda(list);
    add_layers_cuda(list);
    return KernelTable(std::move(list.kernels), std::move(list.joined));
  }();
  return table;
}

Result<std::unique_ptr<Device>> create_cuda_device(const DeviceChoice& choice) {
  return TRY(CudaDevice::create({.ordinal = choice.ordinal, .act_as = choice.act_as}));
}

Status launch_from_outside(Stream& stream, const char* name, const std::function<Status(void*)>& enqueue) {
  CudaStream& cuda = as_cuda(stream);
  TRY(cuda.begin_launch(name));
  TRY(enqueue(cuda.handle()));
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) return cuda.launch_error(name, error);
  return ok_status();
}

const Backend kCudaBackend = [] {
  Backend backend{.create_device = create_cuda_device, .kernels = cuda_kernels, .launch = launch_from_outside};
  add_linear_algorithms_cuda(backend);
  add_row_kernels_cuda(backend);
  return backend;
}();

}  // namespace
}  // namespace tessera

extern "C" {
__attribute__((visibility("default"))) extern const tessera::BackendExport tessera_backend;
const tessera::BackendExport tessera_backend{TESSERA_BACKEND_INTERFACE, &tessera::kCudaBackend};
}
