#include "tessera/device/cuda/testing/fake_driver.h"

#include <cstring>

#include "tessera/device/cuda/testing/fake_driver_state.h"

namespace tessera {

void FakeFunctions::set_device(Driver& t) {
  t.cuDriverGetVersion = [](int* version) {
    return call("cuDriverGetVersion", [&](auto& s) { return *version = s.options.version, CUDA_SUCCESS; });
  };
  t.cuGetErrorName = [](CUresult result, const char** name) {
    static thread_local std::string text;
    text = result == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_" + std::to_string(result);
    *name = text.c_str();
    return CUDA_SUCCESS;
  };
  t.cuGetErrorString = [](CUresult, const char** text) { return *text = "what the driver says of it", CUDA_SUCCESS; };
  t.cuDeviceGetCount = [](int* devices) {
    return call("cuDeviceGetCount", [&](auto& s) { return *devices = s.options.devices, CUDA_SUCCESS; });
  };
  t.cuDeviceGet = [](CUdevice* device, int ordinal) {
    return call("cuDeviceGet", [&](auto&) { return *device = ordinal, CUDA_SUCCESS; });
  };
  t.cuDeviceGetName = [](char* name, int bytes, CUdevice) {
    return call("cuDeviceGetName",
                [&](auto&) { return std::strncpy(name, "Fake GPU", static_cast<std::size_t>(bytes)), CUDA_SUCCESS; });
  };
  t.cuDeviceTotalMem = [](std::size_t* bytes, CUdevice) {
    return call("cuDeviceTotalMem", [&](auto& s) { return *bytes = s.options.memory_bytes, CUDA_SUCCESS; });
  };
  t.cuDeviceGetAttribute = [](int* value, CUdevice_attribute attribute, CUdevice) {
    return call("cuDeviceGetAttribute", [&](auto& s) {
      switch (attribute) {
        case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = s.options.compute_capability / 10; break;
        case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = s.options.compute_capability % 10; break;
        case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 7; break;
        case CU_DEVICE_ATTRIBUTE_MAX_PITCH: *value = FakeDriver::kLargestPitch; break;
        default: *value = 1;
      }
      return CUDA_SUCCESS;
    });
  };
  t.cuDevicePrimaryCtxRetain = [](CUcontext* context, CUdevice) {
    return call("cuDevicePrimaryCtxRetain", [&](auto& s) {
      if (s.retains++ == 0) s.context = handle_of<CUcontext>(++s.last_handle);
      return *context = s.context, CUDA_SUCCESS;
    });
  };
  t.cuDevicePrimaryCtxRelease = [](CUdevice) {
    return call("cuDevicePrimaryCtxRelease", [&](auto& s) {
      if (--s.retains == 0) s.context = nullptr;
      return CUDA_SUCCESS;
    });
  };
  t.cuCtxSetCurrent = [](CUcontext context) {
    return call("cuCtxSetCurrent", [&](auto&) { return current_context = context, CUDA_SUCCESS; });
  };
  t.cuCtxSynchronize = [] {
    return unsafe("cuCtxSynchronize", [&](auto& s) { return s.run_everything(), CUDA_SUCCESS; });
  };
}

FakeDriver::FakeDriver(FakeDriverOptions options) : state_(std::make_unique<State>()) {
  the_fake = this;
  state_->options = options;
// By default, a function only counts its calls and returns success. The set_…() calls below replace many defaults.
#define TESSERA_FAKE_FUNCTION(name) \
  table_.name = [](auto...) { return FakeFunctions::call(#name, [](auto&) { return CUDA_SUCCESS; }); };
  TESSERA_DRIVER_FUNCTIONS(TESSERA_FAKE_FUNCTION)
#undef TESSERA_FAKE_FUNCTION
  FakeFunctions::set_device(table_);
  FakeFunctions::set_memory(table_);
  FakeFunctions::set_virtual_memory(table_);
  FakeFunctions::set_work(table_);
  FakeFunctions::set_streams(table_);
  FakeFunctions::set_capture(table_);
  FakeFunctions::set_modules(table_);
}

FakeDriver::~FakeDriver() { the_fake = nullptr; }

void FakeDriver::fail(const std::string& function, int nth, CUresult result) {
  std::lock_guard lock(state_->mutex);
  state_->plan[function][state_->counts[function] + nth] = result;
}

int FakeDriver::calls(const std::string& function) const {
  std::lock_guard lock(state_->mutex);
  if (!function.empty()) return state_->counts[function];
  int sum = 0;
  for (const auto& [name, count] : state_->counts) sum += count;
  return sum;
}

int FakeDriver::faults() const {
  std::lock_guard lock(state_->mutex);
  return state_->faults;
}

int FakeDriver::live_objects() const {
  std::lock_guard lock(state_->mutex);
  const State& s = *state_;
  return static_cast<int>(s.memory.size() + s.pinned.size() + s.reserved.size() + s.physical.size() + s.streams.size() +
                          s.events.size() + s.graphs.size() + s.execs.size() + s.modules.size()) +
         s.retains;
}

}  // namespace tessera
