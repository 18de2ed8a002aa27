#include "device.h"

#include <algorithm>

namespace opencl {
namespace {

struct Found {
  cl_platform_id platform;
  cl_device_id device;
};

// Returns the devices that can compile programs, in the order of their platforms.
std::vector<Found> find_devices() {
  cl_uint num_platforms = 0;
  if (clGetPlatformIDs(0, nullptr, &num_platforms) != CL_SUCCESS) return {};
  std::vector<cl_platform_id> platforms(num_platforms);
  if (clGetPlatformIDs(num_platforms, platforms.data(), nullptr) != CL_SUCCESS) return {};
  std::vector<Found> found;
  for (cl_platform_id platform : platforms) {
    cl_uint count = 0;
    if (clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, nullptr, &count) != CL_SUCCESS) continue;
    std::vector<cl_device_id> devices(count);
    if (clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, count, devices.data(), nullptr) != CL_SUCCESS) continue;
    for (cl_device_id device : devices)
      if (device_value<cl_bool>(device, CL_DEVICE_COMPILER_AVAILABLE) != CL_FALSE) found.push_back({platform, device});
  }
  return found;
}

bool has_word(const std::string& text, const std::string& word) {
  return (" " + text + " ").find(" " + word + " ") != std::string::npos;
}

// Returns the bytes that this process may use. A CPU device shares the host's memory, so it leaves half of this memory
// to the host. The engine fills the usable memory with a KV cache that is one buffer, so on a CPU device the size limit
// of a buffer is a limit too.
std::int64_t usable_bytes(cl_device_id device) {
  const auto all = device_value<cl_ulong>(device, CL_DEVICE_GLOBAL_MEM_SIZE);
  const auto buffer = device_value<cl_ulong>(device, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
  const bool is_processor = (device_value<cl_device_type>(device, CL_DEVICE_TYPE) & CL_DEVICE_TYPE_CPU) != 0;
  return static_cast<std::int64_t>(is_processor ? std::min(all / 2, buffer) : all);
}

template <class F>
bool load_function(cl_platform_id platform, const char* name, F& function) {
  function = reinterpret_cast<F>(clGetExtensionFunctionAddressForPlatform(platform, name));
  return function != nullptr;
}

}  // namespace

std::string driver_versions() {
  std::string text;
  for (const Found& found : find_devices()) {
    if (!text.empty()) text += "; ";
    text += device_text(found.device, CL_DEVICE_VERSION) + ", driver " + device_text(found.device, CL_DRIVER_VERSION);
  }
  return text;
}

std::string CommandBuffers::load(cl_platform_id platform, cl_device_id device) {
  if (!has_word(device_text(device, CL_DEVICE_EXTENSIONS), CL_KHR_COMMAND_BUFFER_EXTENSION_NAME))
    return "the driver lacks cl_khr_command_buffer";
  const auto required =
      device_value<cl_command_queue_properties>(device, CL_DEVICE_COMMAND_BUFFER_REQUIRED_QUEUE_PROPERTIES_KHR);
  if (required != 0) return "its command buffers need queues that are not in order";
  CommandBuffers loaded;
  const bool all = load_function(platform, "clCreateCommandBufferKHR", loaded.create) &&
                   load_function(platform, "clFinalizeCommandBufferKHR", loaded.finalize) &&
                   load_function(platform, "clReleaseCommandBufferKHR", loaded.release) &&
                   load_function(platform, "clEnqueueCommandBufferKHR", loaded.enqueue) &&
                   load_function(platform, "clCommandNDRangeKernelKHR", loaded.kernel) &&
                   load_function(platform, "clCommandCopyBufferKHR", loaded.copy) &&
                   load_function(platform, "clCommandFillBufferKHR", loaded.fill);
  if (!all) return "the driver lists cl_khr_command_buffer and lacks a function of it";
  const auto capabilities =
      device_value<cl_device_command_buffer_capabilities_khr>(device, CL_DEVICE_COMMAND_BUFFER_CAPABILITIES_KHR);
  loaded.overlapping = (capabilities & CL_COMMAND_BUFFER_CAPABILITY_SIMULTANEOUS_USE_KHR) != 0;
  *this = loaded;
  return {};
}

std::int32_t Device::open(std::int32_t ordinal, std::unique_ptr<Device>& opened, tessera_plugin_error* error) {
  const std::vector<Found> found = find_devices();
  if (ordinal < 0 || static_cast<std::size_t>(ordinal) >= found.size())
    return fail(error, TESSERA_PLUGIN_NOT_FOUND,
                "there is no device " + std::to_string(ordinal) + "; OpenCL drivers on this machine offer " +
                    std::to_string(found.size()) + " that build programs (clinfo lists them)");
  std::unique_ptr<Device> device(new Device);
  device->platform_ = found[static_cast<std::size_t>(ordinal)].platform;
  device->id_ = found[static_cast<std::size_t>(ordinal)].device;
  device->name_ = device_text(device->id_, CL_DEVICE_NAME);
  device->memory_bytes_ = usable_bytes(device->id_);
  device->compute_units_ = static_cast<int>(device_value<cl_uint>(device->id_, CL_DEVICE_MAX_COMPUTE_UNITS, 1));
  device->why_no_graphs_ = device->command_buffers_.load(device->platform_, device->id_);
  cl_int result = CL_SUCCESS;
  device->context_ = Context(clCreateContext(nullptr, 1, &device->id_, nullptr, nullptr, &result));
  OPENCL_TRY(check(error, result, "clCreateContext on " + device->name_));
  device->programs_ = std::make_unique<Programs>(device->context(), device->id_);
  opened = std::move(device);
  return TESSERA_PLUGIN_OK;
}

Memory::Memory(Device& device, std::size_t bytes, cl_mem buffer) : device_(device), bytes_(bytes), buffer_(buffer) {
  device_.allocated_bytes_ += static_cast<std::int64_t>(bytes_);
}

std::int32_t Memory::create(Device& device, std::size_t bytes, const char* name, std::unique_ptr<Memory>& made,
                            tessera_plugin_error* error) {
  // Drivers allocate memory when it is first used and fail only then, so the sum of allocations is tracked here.
  const auto most = static_cast<std::size_t>(device_value<cl_ulong>(device.id(), CL_DEVICE_MAX_MEM_ALLOC_SIZE));
  const auto left = static_cast<std::size_t>(std::max<std::int64_t>(device.available_bytes(), 0));
  const std::string what = std::to_string(bytes) + " bytes for \"" + name + "\"";
  if (bytes > most || bytes > left)
    return fail(
        error, TESSERA_PLUGIN_RESOURCE_EXHAUSTED,
        what + ": " + std::to_string(left) + " are available, " + std::to_string(most) + " in a buffer of this device");
  cl_int result = CL_SUCCESS;
  cl_mem buffer = clCreateBuffer(device.context(), CL_MEM_READ_WRITE, bytes, nullptr, &result);
  OPENCL_TRY(check(error, result, "clCreateBuffer, " + what));
  made.reset(new Memory(device, bytes, buffer));
  return TESSERA_PLUGIN_OK;
}

}  // namespace opencl
