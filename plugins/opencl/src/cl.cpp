#include "cl.h"

#include <iterator>

namespace opencl {
namespace {

struct Named {
  cl_int result;
  const char* name;
};
constexpr Named kNames[] = {
    {CL_DEVICE_NOT_FOUND, "CL_DEVICE_NOT_FOUND"},
    {CL_DEVICE_NOT_AVAILABLE, "CL_DEVICE_NOT_AVAILABLE"},
    {CL_COMPILER_NOT_AVAILABLE, "CL_COMPILER_NOT_AVAILABLE"},
    {CL_MEM_OBJECT_ALLOCATION_FAILURE, "CL_MEM_OBJECT_ALLOCATION_FAILURE"},
    {CL_OUT_OF_RESOURCES, "CL_OUT_OF_RESOURCES"},
    {CL_OUT_OF_HOST_MEMORY, "CL_OUT_OF_HOST_MEMORY"},
    {CL_PROFILING_INFO_NOT_AVAILABLE, "CL_PROFILING_INFO_NOT_AVAILABLE"},
    {CL_MEM_COPY_OVERLAP, "CL_MEM_COPY_OVERLAP"},
    {CL_BUILD_PROGRAM_FAILURE, "CL_BUILD_PROGRAM_FAILURE"},
    {CL_INVALID_VALUE, "CL_INVALID_VALUE"},
    {CL_INVALID_MEM_OBJECT, "CL_INVALID_MEM_OBJECT"},
    {CL_INVALID_KERNEL_ARGS, "CL_INVALID_KERNEL_ARGS"},
    {CL_INVALID_WORK_GROUP_SIZE, "CL_INVALID_WORK_GROUP_SIZE"},
    {CL_INVALID_OPERATION, "CL_INVALID_OPERATION"},
    {CL_INVALID_BUFFER_SIZE, "CL_INVALID_BUFFER_SIZE"},
    {CL_INVALID_GLOBAL_WORK_SIZE, "CL_INVALID_GLOBAL_WORK_SIZE"},
    {CL_INVALID_COMMAND_BUFFER_KHR, "CL_INVALID_COMMAND_BUFFER_KHR"},
};

std::int32_t code_of(cl_int result) {
  switch (result) {
    case CL_SUCCESS: return TESSERA_PLUGIN_OK;
    case CL_MEM_OBJECT_ALLOCATION_FAILURE:
    case CL_OUT_OF_RESOURCES:
    case CL_OUT_OF_HOST_MEMORY:
    case CL_INVALID_BUFFER_SIZE: return TESSERA_PLUGIN_RESOURCE_EXHAUSTED;
    case CL_DEVICE_NOT_AVAILABLE: return TESSERA_PLUGIN_DEVICE_LOST;
    default: return TESSERA_PLUGIN_INTERNAL;
  }
}

}  // namespace

std::string result_name(cl_int result) {
  for (const Named& named : kNames)
    if (named.result == result) return std::string(named.name) + " (" + std::to_string(result) + ")";
  return "OpenCL error " + std::to_string(result);
}

std::int32_t check(tessera_plugin_error* error, cl_int result, const std::string& what) {
  if (result == CL_SUCCESS) return TESSERA_PLUGIN_OK;
  return fail(error, code_of(result), what + ": " + result_name(result));
}

std::string device_text(cl_device_id device, cl_device_info name) {
  std::size_t bytes = 0;
  if (clGetDeviceInfo(device, name, 0, nullptr, &bytes) != CL_SUCCESS || bytes == 0) return {};
  std::string text(bytes, '\0');
  if (clGetDeviceInfo(device, name, bytes, text.data(), nullptr) != CL_SUCCESS) return {};
  text.resize(bytes - 1);  // removes the terminating 0
  return text;
}

}  // namespace opencl
