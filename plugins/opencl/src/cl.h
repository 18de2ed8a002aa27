// Wraps OpenCL's handles (RAII), and converts the result of each call to this plugin's errors, a code and a sentence.
#pragma once

#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <CL/cl_ext.h>

#include <cstdint>
#include <string>
#include <utility>

#include "tessera_plugin.h"

namespace opencl {

// Returns from the enclosing function if `code` is an error.
#define OPENCL_TRY(code) \
  if (const std::int32_t try_code = (code); try_code != TESSERA_PLUGIN_OK) return try_code

inline std::int32_t fail(tessera_plugin_error* error, std::int32_t code, const std::string& message) {
  return tessera_plugin_fail(error, code, message.c_str());
}

// Returns text such as "CL_OUT_OF_RESOURCES (-5)".
std::string result_name(cl_int result);

// Returns TESSERA_PLUGIN_OK for CL_SUCCESS. Otherwise reports `what`, which names the call and its object, together
// with the result. Out of memory and a lost device have codes of their own; everything else is an internal error.
std::int32_t check(tessera_plugin_error* error, cl_int result, const std::string& what);

// A handle of OpenCL, released on destruction.
template <class T, cl_int(CL_API_CALL* kRelease)(T)>
class Owned {
 public:
  Owned() = default;
  explicit Owned(T handle) : handle_(handle) {}
  ~Owned() { reset(); }
  Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }

  T get() const { return handle_; }
  void reset() {
    if (handle_ != nullptr) kRelease(std::exchange(handle_, nullptr));
  }

 private:
  T handle_ = nullptr;
};

using Context = Owned<cl_context, clReleaseContext>;
using Queue = Owned<cl_command_queue, clReleaseCommandQueue>;
using Buffer = Owned<cl_mem, clReleaseMemObject>;
using Program = Owned<cl_program, clReleaseProgram>;
using Kernel = Owned<cl_kernel, clReleaseKernel>;
using ClEvent = Owned<cl_event, clReleaseEvent>;

// Returns a device property as text or number; empty, or `otherwise`, if the driver does not report it.
std::string device_text(cl_device_id device, cl_device_info name);
template <class T>
T device_value(cl_device_id device, cl_device_info name, T otherwise = {}) {
  T value = otherwise;
  return clGetDeviceInfo(device, name, sizeof value, &value, nullptr) == CL_SUCCESS ? value : otherwise;
}

}  // namespace opencl
