// Implements the fake driver's functions for memory: allocations, pinned memory, reserved addresses and their mappings.
#include <sys/mman.h>

#include <cstdlib>

#include "tessera/device/cuda/testing/fake_driver_state.h"

namespace tessera {

void FakeFunctions::set_memory(Driver& t) {
  t.cuMemGetInfo = [](std::size_t* available, std::size_t* total) {
    return unsafe("cuMemGetInfo", [&](auto& s) {
      *total = s.options.memory_bytes;
      *available = s.options.memory_bytes - s.used_bytes;
      return CUDA_SUCCESS;
    });
  };
  t.cuMemAlloc = [](CUdeviceptr* address, std::size_t bytes) {
    return unsafe("cuMemAlloc", [&](auto& s) {
      if (bytes > s.options.memory_bytes - s.used_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
      *address = reinterpret_cast<CUdeviceptr>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
      s.used_bytes += bytes;
      s.memory[*address] = bytes;
      return CUDA_SUCCESS;
    });
  };
  t.cuMemFree = [](CUdeviceptr address) {
    return unsafe("cuMemFree", [&](auto& s) {
      if (!s.memory.contains(address)) return CUDA_ERROR_INVALID_VALUE;
      s.run_everything();
      s.used_bytes -= s.memory[address];
      s.memory.erase(address);
      std::free(pointer_of(address));
      return CUDA_SUCCESS;
    });
  };
  t.cuMemHostAlloc = [](void** data, std::size_t bytes, unsigned) {
    return unsafe("cuMemHostAlloc", [&](auto& s) {
      *data = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
      s.pinned[*data] = bytes;
      return CUDA_SUCCESS;
    });
  };
  t.cuMemFreeHost = [](void* data) {
    return unsafe("cuMemFreeHost", [&](auto& s) {
      if (s.pinned.erase(data) == 0) return CUDA_ERROR_INVALID_VALUE;
      s.run_everything();
      std::free(data);
      return CUDA_SUCCESS;
    });
  };
  t.cuMemHostRegister = [](void* data, std::size_t bytes, unsigned) {
    return unsafe("cuMemHostRegister", [&](auto& s) {
      s.pinned[data] = bytes;
      return CUDA_SUCCESS;
    });
  };
  t.cuMemHostUnregister = [](void* data) {
    return unsafe("cuMemHostUnregister", [&](auto& s) {
      if (s.pinned.erase(data) == 0) return CUDA_ERROR_INVALID_VALUE;
      s.run_everything();
      return CUDA_SUCCESS;
    });
  };
}

void FakeFunctions::set_virtual_memory(Driver& t) {
  t.cuMemGetAllocationGranularity = [](std::size_t* bytes, const CUmemAllocationProp*,
                                       CUmemAllocationGranularity_flags) {
    return call("cuMemGetAllocationGranularity", [&](auto&) { return *bytes = kGranularity, CUDA_SUCCESS; });
  };
  t.cuMemAddressReserve = [](CUdeviceptr* address, std::size_t bytes, std::size_t, CUdeviceptr, unsigned long long) {
    return unsafe("cuMemAddressReserve", [&](auto& s) {
      void* const data = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (data == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
      *address = reinterpret_cast<CUdeviceptr>(data);
      s.reserved[*address] = bytes;
      return CUDA_SUCCESS;
    });
  };
  t.cuMemAddressFree = [](CUdeviceptr address, std::size_t bytes) {
    return unsafe("cuMemAddressFree", [&](auto& s) {
      if (s.reserved.erase(address) == 0) return CUDA_ERROR_INVALID_VALUE;
      return munmap(pointer_of(address), bytes) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    });
  };
  t.cuMemCreate = [](CUmemGenericAllocationHandle* handle, std::size_t bytes, const CUmemAllocationProp* properties,
                     unsigned long long) {
    return unsafe("cuMemCreate", [&](auto& s) {
      if (bytes % kGranularity != 0) return CUDA_ERROR_INVALID_VALUE;
      if (properties->allocFlags.gpuDirectRDMACapable != 0 && !s.options.takes_rdma) return CUDA_ERROR_NOT_SUPPORTED;
      if (properties->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE && !s.options.takes_file_descriptors) {
        return CUDA_ERROR_NOT_PERMITTED;
      }
      if (bytes > s.options.memory_bytes - s.used_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
      s.used_bytes += bytes;
      s.physical[*handle = ++s.last_handle] = {.bytes = bytes};
      return CUDA_SUCCESS;
    });
  };
  t.cuMemRelease = [](CUmemGenericAllocationHandle handle) {
    return unsafe("cuMemRelease", [&](auto& s) {
      s.physical.at(handle).released = true;
      return s.forget(handle), CUDA_SUCCESS;
    });
  };
  t.cuMemMap = [](CUdeviceptr address, std::size_t bytes, std::size_t, CUmemGenericAllocationHandle handle,
                  unsigned long long) {
    return unsafe("cuMemMap", [&](auto& s) {
      if (s.physical.at(handle).bytes != bytes) return CUDA_ERROR_INVALID_VALUE;
      return s.physical.at(handle).mapped_at = address, CUDA_SUCCESS;
    });
  };
  t.cuMemSetAccess = [](CUdeviceptr address, std::size_t bytes, const CUmemAccessDesc*, std::size_t) {
    return unsafe("cuMemSetAccess", [&](auto&) {
      const bool opened = mprotect(pointer_of(address), bytes, PROT_READ | PROT_WRITE) == 0;
      return opened ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    });
  };
  t.cuMemUnmap = [](CUdeviceptr address, std::size_t bytes) {
    return unsafe("cuMemUnmap", [&](auto& s) {
      s.run_everything();
      for (auto& [handle, physical] : s.physical) {
        if (physical.mapped_at != address || physical.bytes != bytes) continue;
        physical.mapped_at = 0;
        (void)mprotect(pointer_of(address), bytes, PROT_NONE);
        return s.forget(handle), CUDA_SUCCESS;
      }
      return CUDA_ERROR_INVALID_VALUE;
    });
  };
}

}  // namespace tessera
