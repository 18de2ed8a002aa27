#include "tessera/device/cuda/cuda_memory.h"

#include "tessera/device/cpu/host_limits.h"
#include "tessera/device/cuda/huge_pages.h"

namespace tessera {
namespace {

// Pinned memory of at least this size is mapped in huge pages.
constexpr std::size_t kHugeFrom = std::size_t{4} << 20;

}  // namespace

Result<std::unique_ptr<CudaAllocation>> CudaAllocation::create(CudaDevice& device, std::size_t bytes,
                                                               std::string_view name) {
  std::unique_ptr<CudaAllocation> allocation(new CudaAllocation(device, name));
  if (bytes == 0) return allocation;
  // Sizes above the GPU's memory are an error here, because the driver's arithmetic overflows for very large sizes.
  if (bytes > static_cast<std::size_t>(device.properties().memory_bytes)) {
    return out_of_device_memory(DeviceCall::kAllocate, name, bytes, device.available_bytes());
  }
  CUdeviceptr address = 0;
  TRY(device.check(device.driver().cuMemAlloc(&address, bytes), {"cuMemAlloc", DeviceCall::kAllocate, name, bytes}));
  allocation->data_ = pointer_of(address);
  allocation->size_ = bytes;
  return allocation;
}

CudaAllocation::~CudaAllocation() {
  if (data_ == nullptr) return;
  device_.recording().note_freed(name_);
  device_.release([&driver = device_.driver(), address = address_of(data_)] { (void)driver.cuMemFree(address); });
}

Result<std::unique_ptr<PinnedAllocation>> PinnedAllocation::create(CudaDevice& device, std::size_t bytes,
                                                                   std::string_view name) {
  std::unique_ptr<PinnedAllocation> allocation(new PinnedAllocation(device, name));
  if (bytes == 0) return allocation;
  // The free memory is checked first, because the system allocates pinned pages at once and kills a process that pins
  // more than its control group allows.
  const std::int64_t available = read_host_memory().available_bytes;
  if (available < 0 || bytes > static_cast<std::size_t>(available)) {
    return out_of_device_memory(DeviceCall::kAllocate, name, bytes, available);
  }
  const char* function = "cuMemHostAlloc";
  void* data = nullptr;
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  if (bytes < kHugeFrom) {
    result = device.driver().cuMemHostAlloc(&data, bytes, CU_MEMHOSTALLOC_PORTABLE);
  } else if (std::byte* const pages = map_huge_pages(bytes); pages == nullptr) {
    function = "mmap";
  } else {
    function = "cuMemHostRegister";
    data = pages;
    result = device.driver().cuMemHostRegister(data, bytes, CU_MEMHOSTREGISTER_PORTABLE);
    if (result != CUDA_SUCCESS) unmap_huge_pages(pages, bytes);
  }
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    return out_of_device_memory(DeviceCall::kAllocate, name, bytes, available).with_context(function);
  }
  TRY(device.check(result, {function, DeviceCall::kAllocate, name, bytes}));
  allocation->data_ = static_cast<std::byte*>(data);
  allocation->size_ = bytes;
  device.add_pinned(allocation->data_, bytes);
  return allocation;
}

PinnedAllocation::~PinnedAllocation() {
  if (data_ == nullptr) return;
  device_.recording().note_freed(name_);
  device_.remove_pinned(data_);
  device_.release([&driver = device_.driver(), data = data_, bytes = size_] {
    if (bytes < kHugeFrom) {
      (void)driver.cuMemFreeHost(data);
      return;
    }
    // Like cuMemFreeHost, cuMemHostUnregister waits for copies that still read the pages. Pages that it could not
    // unregister stay mapped, because the device may still read them.
    if (driver.cuMemHostUnregister(data) == CUDA_SUCCESS) unmap_huge_pages(data, bytes);
  });
}

}  // namespace tessera
