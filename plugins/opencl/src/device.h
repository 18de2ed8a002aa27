// Implements an OpenCL device with one context. Memory is a set of buffers, a stream is an in-order queue, and a
// recorded graph is a command buffer (cl_khr_command_buffer). An address is {Memory*, bytes from its start}. Kernels
// get the buffer and the offset.
//
// Threads: as tessera_plugin.h requires of devices and their objects.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "cl.h"
#include "programs.h"

namespace opencl {

// The functions of cl_khr_command_buffer, which the loader does not export. All are null if a device lacks the
// extension.
struct CommandBuffers {
  clCreateCommandBufferKHR_fn create = nullptr;
  clFinalizeCommandBufferKHR_fn finalize = nullptr;
  clReleaseCommandBufferKHR_fn release = nullptr;
  clEnqueueCommandBufferKHR_fn enqueue = nullptr;
  clCommandNDRangeKernelKHR_fn kernel = nullptr;
  clCommandCopyBufferKHR_fn copy = nullptr;
  clCommandFillBufferKHR_fn fill = nullptr;
  bool overlapping = false;  // a command buffer may be launched before its last launch has ended

  // Returns "" if `device` has everything needed; otherwise what is missing.
  std::string load(cl_platform_id platform, cl_device_id device);
};

// Returns the versions of all devices that Device::open() counts.
std::string driver_versions();

class Device {
 public:
  // Opens a device. `ordinal` is its index among the devices of all platforms that can compile programs. If there is no
  // device with this index, returns NOT_FOUND with the number of these devices.
  static std::int32_t open(std::int32_t ordinal, std::unique_ptr<Device>& opened, tessera_plugin_error* error);

  cl_context context() const { return context_.get(); }
  cl_device_id id() const { return id_; }
  const std::string& name() const { return name_; }
  const CommandBuffers& command_buffers() const { return command_buffers_; }
  // Returns why streams cannot record; "" if they can.
  const std::string& why_no_graphs() const { return why_no_graphs_; }
  Programs& programs() { return *programs_; }

  // Total memory that this process may use. A CPU device leaves half of the host's memory to the host.
  std::int64_t memory_bytes() const { return memory_bytes_; }
  std::int64_t available_bytes() const { return memory_bytes_ - allocated_bytes_; }
  int compute_units() const { return compute_units_; }

 private:
  friend class Memory;
  Device() = default;

  cl_platform_id platform_ = nullptr;
  cl_device_id id_ = nullptr;
  std::string name_;
  std::int64_t memory_bytes_ = 0;
  int compute_units_ = 0;
  std::atomic<std::int64_t> allocated_bytes_{0};
  CommandBuffers command_buffers_;
  std::string why_no_graphs_;
  Context context_;
  std::unique_ptr<Programs> programs_;
};

// One buffer; the handle of a tessera_plugin_address.
class Memory {
 public:
  // Returns RESOURCE_EXHAUSTED if the device has too little memory left, or no buffer may be so large.
  static std::int32_t create(Device& device, std::size_t bytes, const char* name, std::unique_ptr<Memory>& made,
                             tessera_plugin_error* error);
  ~Memory() { device_.allocated_bytes_ -= static_cast<std::int64_t>(bytes_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  cl_mem buffer() const { return buffer_.get(); }
  static const Memory& at(tessera_plugin_address address) { return *static_cast<const Memory*>(address.handle); }

 private:
  Memory(Device& device, std::size_t bytes, cl_mem buffer);
  Device& device_;
  std::size_t bytes_;
  Buffer buffer_;
};

}  // namespace opencl
