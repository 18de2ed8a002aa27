// Loads the CUDA driver API as a table of functions when the first CUDA device is opened. The CUDA backend therefore
// loads even on machines without a driver, and a test can put its own functions into the table.
//
//   const Driver driver = TRY(load_driver());
//   const CUresult result = driver.cuEventSynchronize(event);
//   if (result != CUDA_SUCCESS) return driver_error(driver, result, {"cuEventSynchronize", call, name}, 0);
//
// cuda.h maps function names to versioned symbols (cuMemAlloc to cuMemAlloc_v2). The names of the members and all uses
// of the members go through the same mapping, so a member and its uses always mean the same function.
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
  X(cuMemHostRegister) X(cuMemHostUnregister)                                                             \
  X(cuMemAddressReserve) X(cuMemAddressFree) X(cuMemCreate) X(cuMemRelease) X(cuMemMap) X(cuMemUnmap)     \
  X(cuMemSetAccess) X(cuMemGetAllocationGranularity)                                                      \
  X(cuMemcpyHtoDAsync) X(cuMemcpyDtoHAsync) X(cuMemcpyDtoDAsync) X(cuMemcpy2DAsync) X(cuMemsetD8Async)    \
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

// These functions convert between addresses of the driver, which are integers, and addresses of the device contract,
// which are pointers.
inline CUdeviceptr address_of(const std::byte* data) { return reinterpret_cast<CUdeviceptr>(data); }
inline std::byte* pointer_of(CUdeviceptr address) {
  return reinterpret_cast<std::byte*>(address);  // NOLINT(performance-no-int-to-ptr)
}

// Loads the driver. Returns kNotFound if this machine has no NVIDIA driver, or if the driver is too old for this build.
// The library stays loaded until the process ends.
Result<Driver> load_driver();

// Returns kNotFound if the driver's CUDA version has an older major version than the CUDA of this build.
Status check_driver_version(const Driver& driver);

// Details of a driver call for its error message.
struct DriverCall {
  const char* function = "";  // for example "cuMemAlloc"
  DeviceCall call = DeviceCall::kLaunch;
  std::string_view object;  // name of the memory, stream, kernel or recording; must outlive this struct
  std::size_t bytes = 0;    // 0 if the call has no size
};

// Returns whether, after this result, all later calls in the process's context fail until the process is restarted.
bool is_device_lost(CUresult result);

// Returns the Status of a failed driver call. The code is kDeviceLost if is_device_lost(result), kResourceExhausted if
// memory ran out (with `available_bytes` in the message), and otherwise kInternal. Precondition: `result` is not
// CUDA_SUCCESS.
Status driver_error(const Driver& driver, CUresult result, const DriverCall& call, std::int64_t available_bytes);

}  // namespace tessera
