// A layer between the OpenCL loader and its drivers (OPENCL_LAYERS=libopencl_watching_layer.so), for tests of whole
// programs:
//   OPENCL_TEST_HIDE=1       drivers seem to lack cl_khr_command_buffer
//   OPENCL_TEST_COUNTS=FILE  at its end a process that used a device adds a line to FILE:
//                            "kernels N copies N graphs N launches N most N": kernels and copies outside of command
//                            buffers, command buffers, their launches, and the most launches of a single one
#include <CL/cl_ext.h>
#include <CL/cl_layer.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

namespace {

struct Counts {
  std::mutex mutex;
  long kernels = 0;
  long copies = 0;
  std::map<cl_command_buffer_khr, long> launches;  // launches by live command buffer
  long finalized = 0;
  long launched = 0;
  long most = 0;
};
Counts& counts() {
  static auto* const made = new Counts;  // outlives the drivers' own threads
  return *made;
}

cl_icd_dispatch below;  // the loader's own table
cl_icd_dispatch table;  // the same table with the watched functions replaced
clEnqueueCommandBufferKHR_fn enqueue_below = nullptr;
clFinalizeCommandBufferKHR_fn finalize_below = nullptr;

cl_int CL_API_CALL enqueue_command_buffer(cl_uint num_queues, cl_command_queue* queues, cl_command_buffer_khr buffer,
                                          cl_uint num_events, const cl_event* events, cl_event* event) {
  {
    Counts& c = counts();
    std::lock_guard lock(c.mutex);
    ++c.launched;
    c.most = std::max(c.most, ++c.launches[buffer]);
  }
  return enqueue_below(num_queues, queues, buffer, num_events, events, event);
}

cl_int CL_API_CALL finalize_command_buffer(cl_command_buffer_khr buffer) {
  {
    Counts& c = counts();
    std::lock_guard lock(c.mutex);
    ++c.finalized;
    c.launches[buffer] = 0;  // a new command buffer may reuse an old one's address
  }
  return finalize_below(buffer);
}

cl_int CL_API_CALL enqueue_kernel(cl_command_queue queue, cl_kernel kernel, cl_uint dims, const size_t* offset,
                                  const size_t* global, const size_t* local, cl_uint num_events, const cl_event* events,
                                  cl_event* event) {
  {
    std::lock_guard lock(counts().mutex);
    ++counts().kernels;
  }
  return below.clEnqueueNDRangeKernel(queue, kernel, dims, offset, global, local, num_events, events, event);
}

cl_int CL_API_CALL enqueue_copy(cl_command_queue queue, cl_mem from, cl_mem to, size_t from_offset, size_t to_offset,
                                size_t bytes, cl_uint num_events, const cl_event* events, cl_event* event) {
  {
    std::lock_guard lock(counts().mutex);
    ++counts().copies;
  }
  return below.clEnqueueCopyBuffer(queue, from, to, from_offset, to_offset, bytes, num_events, events, event);
}

void* CL_API_CALL function_address(cl_platform_id platform, const char* name) {
  void* found = below.clGetExtensionFunctionAddressForPlatform(platform, name);
  if (found == nullptr) return nullptr;
  if (std::strcmp(name, "clEnqueueCommandBufferKHR") == 0) {
    enqueue_below = reinterpret_cast<clEnqueueCommandBufferKHR_fn>(found);
    return reinterpret_cast<void*>(enqueue_command_buffer);
  }
  if (std::strcmp(name, "clFinalizeCommandBufferKHR") == 0) {
    finalize_below = reinterpret_cast<clFinalizeCommandBufferKHR_fn>(found);
    return reinterpret_cast<void*>(finalize_command_buffer);
  }
  return found;
}

// Answers as the driver does, but hides cl_khr_command_buffer in the list of extensions. Spaces overwrite the name, so
// that the list keeps its length.
cl_int CL_API_CALL device_info(cl_device_id device, cl_device_info name, size_t bytes, void* value, size_t* needed) {
  const cl_int result = below.clGetDeviceInfo(device, name, bytes, value, needed);
  if (result != CL_SUCCESS || name != CL_DEVICE_EXTENSIONS || value == nullptr) return result;
  char* const found = std::strstr(static_cast<char*>(value), CL_KHR_COMMAND_BUFFER_EXTENSION_NAME);
  if (found != nullptr) std::memset(found, ' ', std::strlen(CL_KHR_COMMAND_BUFFER_EXTENSION_NAME));
  return CL_SUCCESS;
}

[[gnu::destructor]] void write_counts() {
  const char* path = std::getenv("OPENCL_TEST_COUNTS");
  Counts& c = counts();
  std::lock_guard lock(c.mutex);
  if (path == nullptr || c.kernels + c.launched == 0) return;
  std::FILE* file = std::fopen(path, "a");
  if (file == nullptr) return;
  std::fprintf(file, "kernels %ld copies %ld graphs %ld launches %ld most %ld\n", c.kernels, c.copies, c.finalized,
               c.launched, c.most);
  std::fclose(file);
}

}  // namespace

extern "C" CL_API_ENTRY cl_int CL_API_CALL clGetLayerInfo(cl_layer_info name, size_t bytes, void* value,
                                                          size_t* needed) {
  const cl_layer_api_version version = CL_LAYER_API_VERSION_100;
  const char own_name[] = "watching";
  const void* const from = name == CL_LAYER_NAME ? static_cast<const void*>(own_name) : &version;
  const size_t size = name == CL_LAYER_NAME ? sizeof own_name : sizeof version;
  if (name != CL_LAYER_NAME && name != CL_LAYER_API_VERSION) return CL_INVALID_VALUE;
  if (needed != nullptr) *needed = size;
  if (value == nullptr) return CL_SUCCESS;
  if (bytes < size) return CL_INVALID_VALUE;
  std::memcpy(value, from, size);
  return CL_SUCCESS;
}

extern "C" CL_API_ENTRY cl_int CL_API_CALL clInitLayer(cl_uint num_entries, const cl_icd_dispatch* target,
                                                       cl_uint* num_layer_entries, const cl_icd_dispatch** layer) {
  constexpr cl_uint kEntries = sizeof(cl_icd_dispatch) / sizeof(void*);
  if (target == nullptr || num_layer_entries == nullptr || layer == nullptr) return CL_INVALID_VALUE;
  std::memcpy(&below, target, std::min(num_entries, kEntries) * sizeof(void*));
  table = below;
  table.clGetExtensionFunctionAddressForPlatform = function_address;
  table.clEnqueueNDRangeKernel = enqueue_kernel;
  table.clEnqueueCopyBuffer = enqueue_copy;
  if (std::getenv("OPENCL_TEST_HIDE") != nullptr) table.clGetDeviceInfo = device_info;
  *num_layer_entries = std::min(num_entries, kEntries);
  *layer = &table;
  return CL_SUCCESS;
}
