// An arena that uses the driver's virtual memory management. Addresses are reserved once. Each grow() maps one more
// piece of physical memory after the earlier pieces. If the GPU and the system allow it, pieces can be exported as
// POSIX file descriptors, and network cards can access the pieces (GPUDirect RDMA). If the driver refuses such a piece,
// the arena requests it without RDMA. If the driver refuses again, the arena requests the piece without exports too.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/device/cuda/cuda_device.h"

namespace tessera {

class VmmArena final : public Arena {
 public:
  static Result<std::unique_ptr<VmmArena>> create(CudaDevice& device, ArenaOptions options);
  // Waits for all work on the GPU, because cuMemUnmap does.
  ~VmmArena() override;
  VmmArena(const VmmArena&) = delete;
  VmmArena& operator=(const VmmArena&) = delete;

  // Allocates memory in multiples of the driver's granularity (usually 2 MiB).
  Status grow(std::size_t bytes) override;

  // Return whether the driver has granted exports, or RDMA, for all pieces until now.
  bool exportable() const { return properties_.requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE; }
  bool rdma_capable() const { return properties_.allocFlags.gpuDirectRDMACapable != 0; }

 private:
  struct Piece {
    CUdeviceptr address = 0;
    std::size_t bytes = 0;
    CUmemGenericAllocationHandle handle = 0;
  };

  VmmArena(CudaDevice& device, ArenaOptions options) : device_(device), options_(std::move(options)) {}
  Status read_properties();
  Status create_handle(Piece& piece);
  Status map(const Piece& piece);

  CudaDevice& device_;
  ArenaOptions options_;
  CUmemAllocationProp properties_{};
  std::size_t granularity_ = 0;  // in bytes
  std::vector<Piece> pieces_;
};

}  // namespace tessera
