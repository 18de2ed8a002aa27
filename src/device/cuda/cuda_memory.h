// Implements memory blocks of fixed size for the CUDA device. A block is either GPU memory or pinned host memory.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "tessera/device/cuda/cuda_device.h"

namespace tessera {

class CudaAllocation final : public Allocation {
 public:
  static Result<std::unique_ptr<CudaAllocation>> create(CudaDevice& device, std::size_t bytes, std::string_view name);
  // Waits for all work on the GPU, because cuMemFree does.
  ~CudaAllocation() override;
  CudaAllocation(const CudaAllocation&) = delete;
  CudaAllocation& operator=(const CudaAllocation&) = delete;

 private:
  CudaAllocation(CudaDevice& device, std::string_view name) : device_(device), name_(name) {}

  CudaDevice& device_;
  std::string name_;
};

// Pinned host memory, which the GPU accesses directly, from any context.
class PinnedAllocation final : public HostAllocation {
 public:
  static Result<std::unique_ptr<PinnedAllocation>> create(CudaDevice& device, std::size_t bytes, std::string_view name);
  ~PinnedAllocation() override;
  PinnedAllocation(const PinnedAllocation&) = delete;
  PinnedAllocation& operator=(const PinnedAllocation&) = delete;

 private:
  PinnedAllocation(CudaDevice& device, std::string_view name) : device_(device), name_(name) {}

  CudaDevice& device_;
  std::string name_;
};

}  // namespace tessera
