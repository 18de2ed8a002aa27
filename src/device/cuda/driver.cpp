#include "tessera/device/cuda/driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace tessera {
namespace {

constexpr const char* kLibrary = "libcuda.so.1";
// A driver supports all CUDA versions of its own major version, and all older versions.
constexpr int kOldestDriver = CUDA_VERSION / 1000 * 1000;

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

// Returns the name or the text of a result, or `unknown` if the driver is older than the result code.
const char* text_of(CUresult (*get)(CUresult, const char**), CUresult result, const char* unknown) {
  const char* text = nullptr;
  return get(result, &text) == CUDA_SUCCESS && text != nullptr ? text : unknown;
}

}  // namespace

Result<Driver> load_driver() {
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    return not_found(fmt::format("no NVIDIA driver: {}", reason != nullptr ? reason : kLibrary));
  }
  Driver driver;
  const char* missing = nullptr;
  const auto find = [&](auto& function, const char* symbol) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, symbol));
    if (function == nullptr && missing == nullptr) missing = symbol;
  };
// There are two macros so that `symbol` is expanded to the versioned name that cuda.h defines.
#define TESSERA_SYMBOL_TEXT(symbol) #symbol
#define TESSERA_FIND_FUNCTION(name) find(driver.name, TESSERA_SYMBOL_TEXT(name));
  TESSERA_DRIVER_FUNCTIONS(TESSERA_FIND_FUNCTION)
#undef TESSERA_FIND_FUNCTION
#undef TESSERA_SYMBOL_TEXT
  if (missing == nullptr) return driver;
  // The version is checked first, because the message "the driver is too old" explains more than the name of a missing
  // symbol.
  if (driver.cuDriverGetVersion != nullptr) TRY(check_driver_version(driver));
  return not_found(fmt::format("the NVIDIA driver lacks '{}' in {}; install a driver for CUDA {} or newer", missing,
                               kLibrary, version_text(CUDA_VERSION)));
}

Status check_driver_version(const Driver& driver) {
  int version = 0;
  const CUresult result = driver.cuDriverGetVersion(&version);
  if (result != CUDA_SUCCESS)
    return driver_error(driver, result, {"cuDriverGetVersion", DeviceCall::kOpenDevice, "cuda"}, 0);
  if (version >= kOldestDriver) return ok_status();
  return not_found(
      fmt::format("the NVIDIA driver serves CUDA {} at most, and this build needs a driver for CUDA {} or newer",
                  version_text(version), version_text(kOldestDriver)));
}

bool is_device_lost(CUresult result) {
  switch (result) {
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_EXTERNAL_DEVICE:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_MPS_CLIENT_TERMINATED:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_TENSOR_MEMORY_LEAK: return true;
    default: return false;
  }
}

Status driver_error(const Driver& driver, CUresult result, const DriverCall& call, std::int64_t available_bytes) {
  if (result == CUDA_ERROR_OUT_OF_MEMORY && call.bytes > 0) {
    return out_of_device_memory(call.call, call.object, call.bytes, available_bytes).with_context(call.function);
  }
  std::string message = fmt::format("{}: {} '{}'", call.function, device_call_name(call.call), call.object);
  if (call.bytes > 0) message += fmt::format(" ({} bytes)", call.bytes);
  message += fmt::format(": {}, {}", text_of(driver.cuGetErrorName, result, "an unknown result"),
                         text_of(driver.cuGetErrorString, result, std::to_string(result).c_str()));
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    return resource_exhausted(fmt::format("{} ({} MiB are available)", message, available_bytes >> 20));
  }
  // A kernel runs long after its launch, so the call that reports a kernel's error is rarely the call that caused it.
  if (is_device_lost(result)) return device_lost(message + " (by this call or by work enqueued before it)");
  return internal_error(std::move(message));
}

}  // namespace tessera
