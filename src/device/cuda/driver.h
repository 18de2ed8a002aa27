// The CUDA driver API as a table of functions, which is looked up when the first CUDA device is opened. So this library
// loads on machines without a driver, and a test can put functions of its own into the table.
//
//   const Driver driver = TRY(load_driver());
//   const CUresult result = driver.cuEventSynchronize(event);
//   if (result != CUDA_SUCCESS) return driver_error(driver, result, {"cuEventSynchronize", call, name}, 0);
//
// cuda.h maps names to the versions that it declares (cuMemAlloc to cuMemAlloc_v2). Members and their uses go through
// the same mapping, so that both always mean the same function.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tessera/base/status.h"
#include "tessera/device/errors.h"

// clang-format off
#define TESSERA_DRIVER_FUNCTIONS(X)                                                                       \
  X(cuInit) X(cuDriverGetVersion) X(cuGetErrorName) X(cuGetErrorString)                                   \
  X(cuDeviceGetCount) X(cuDeviceGet) X(cuDeviceGetName) X(cuDeviceTotalMem) X(cuDeviceGetAttribute)       \
  X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease) X(cuCtxSetCurrent) X(cuCtxSynchronize)         \
  X(cuMemGetInfo) X(cuMemAlloc) X(cuMemFree) X(cuMemHostAlloc) X(cuMemFreeHost)                           \
  X(cuMemAddressReserve) X(cuMemAddressFree) X(cuMemCreate) X(cuMemRelease) X(cuMemMap) X(cuMemUnmap)     \
  X(cuMemSetAccess) X(cuMemGetAllocationGranularity)                                                      \
  X(cuMemcpyHtoDAsync) X(cuMemcpyDtoHAsync) X(cuMemcpyDtoDAsync) X(cuMemsetD8Async)                       \
  X(cuStreamCreate) X(cuStreamCreateWithPriority) X(cuStreamDestroy) X(cuStreamSynchronize) X(cuStreamWaitEvent) \
  X(cuStreamBeginCapture) X(cuStreamEndCapture) X(cuStreamIsCapturing) X(cuThreadExchangeStreamCaptureMode)                      \
  X(cuEventCreate) X(cuEventDestroy) X(cuEventRecord) X(cuEventSynchronize) X(cuEventElapsedTime)                             \
  X(cuGraphInstantiate) X(cuGraphUpload) X(cuGraphLaunch) X(cuGraphDestroy) X(cuGraphExecDestroy)         \
  X(cuGraphGetNodes)                                                                                      \
  X(cuModuleLoadData) X(cuModuleUnload) X(cuModuleGetFunction) X(cuLaunchKernelEx)
// clang-format on

namespace tessera {

struct Driver {
// NOLINTNEXTLINE(bugprone-macro-parentheses): the name of a member
#define TESSERA_DRIVER_MEMBER(name) decltype(&::name) name = nullptr;
  TESSERA_DRIVER_FUNCTIONS(TESSERA_DRIVER_MEMBER)
#undef TESSERA_DRIVER_MEMBER
};

// Converts between the driver's addresses, which are integers, and the device contract's, which are pointers.
inline CUdeviceptr address_of(const std::byte* data) { return reinterpret_cast<CUdeviceptr>(data); }
inline std::byte* pointer_of(CUdeviceptr address) {
  return reinterpret_cast<std::byte*>(address);  // NOLINT(performance-no-int-to-ptr)
}

// Loads the driver. kNotFound if this machine has no NVIDIA driver, or one that is too old for this build. The library
// stays loaded until the process ends.
Result<Driver> load_driver();

// Returns kNotFound if the driver is older than the CUDA that this build was made with.
Status check_driver_version(const Driver& driver);

// The parts of a driver call that its error names.
struct DriverCall {
  const char* function = "";  // "cuMemAlloc"
  DeviceCall call = DeviceCall::kLaunch;
  std::string_view object;  // name of the memory, stream, kernel or recording; borrowed for the call
  std::size_t bytes = 0;    // 0 if the call has no size
};

// Returns whether every later call of the process's context fails too, until a restart.
bool is_device_lost(CUresult result);

// Makes the Status of a failed driver call: kDeviceLost; kResourceExhausted if memory is exhausted, with
// `available_bytes` in the message; kInternal for everything else. Precondition: `result` is not CUDA_SUCCESS.
Status driver_error(const Driver& driver, CUresult result, const DriverCall& call, std::int64_t available_bytes);

}  // namespace tessera
