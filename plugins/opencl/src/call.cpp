#include "call.h"

namespace opencl {

std::int32_t Bound::enqueue(Stream& stream, tessera_plugin_error* error) const {
  if (copy) OPENCL_TRY(stream.copy(copy->to, copy->from, copy->bytes, error));
  for (const Launch& launch : launches) OPENCL_TRY(stream.run(launch, error));
  return TESSERA_PLUGIN_OK;
}

std::int64_t attribute_int(const tessera_plugin_node& node, const char* name, std::int64_t otherwise) {
  const tessera_plugin_attribute* found = tessera_plugin_find_attribute(&node, name);
  return found != nullptr ? found->integer : otherwise;
}

double attribute_double(const tessera_plugin_node& node, const char* name, double otherwise) {
  const tessera_plugin_attribute* found = tessera_plugin_find_attribute(&node, name);
  return found != nullptr ? found->number : otherwise;
}

bool attribute_bool(const tessera_plugin_node& node, const char* name, bool otherwise) {
  const tessera_plugin_attribute* found = tessera_plugin_find_attribute(&node, name);
  return found != nullptr ? found->integer != 0 : otherwise;
}

std::vector<std::int64_t> attribute_ints(const tessera_plugin_node& node, const char* name) {
  const tessera_plugin_attribute* found = tessera_plugin_find_attribute(&node, name);
  if (found == nullptr) return {};
  return {found->ints, found->ints + found->num_ints};
}

cl_uint norm_form(const tessera_plugin_node& node) {
  if (attribute_bool(node, "unit_offset", false)) return 2;
  return attribute_bool(node, "round_once", false) ? 1 : 0;
}

std::int64_t elements(const tessera_plugin_tensor& tensor) {
  std::int64_t n = 1;
  for (std::int32_t i = 0; i < tensor.rank; ++i) n *= tensor.dims[i];
  return n;
}

std::int64_t cols(const tessera_plugin_tensor& tensor) { return tensor.rank == 0 ? 1 : tensor.dims[tensor.rank - 1]; }

std::int64_t rows(const tessera_plugin_tensor& tensor) {
  return cols(tensor) == 0 ? 0 : elements(tensor) / cols(tensor);
}

std::size_t element_bytes(std::int32_t dtype) {
  switch (dtype) {
    case TESSERA_PLUGIN_F16:
    case TESSERA_PLUGIN_BF16: return 2;
    case TESSERA_PLUGIN_I64: return 8;
    case TESSERA_PLUGIN_U8:
    case TESSERA_PLUGIN_F8E4M3: return 1;
    default: return 4;
  }
}

Launch Binding::sized(Grid grid) {
  const auto round_up = [](std::int64_t items, std::int64_t group) {
    return static_cast<std::size_t>((items + group - 1) / group * group);
  };
  Launch launch;
  launch.dims = 2;
  launch.global[0] = round_up(grid.x, grid.local_x);
  launch.global[1] = round_up(grid.y, grid.local_y);
  launch.local[0] = static_cast<std::size_t>(grid.local_x);
  launch.local[1] = static_cast<std::size_t>(grid.local_y);
  return launch;
}

cl_int Binding::set(cl_kernel kernel, cl_uint& at, const tessera_plugin_address& address) {
  cl_mem buffer = address.handle != nullptr ? Memory::at(address).buffer() : nullptr;
  const cl_int result = clSetKernelArg(kernel, at++, sizeof buffer, buffer != nullptr ? &buffer : nullptr);
  if (result != CL_SUCCESS) return result;
  const cl_ulong offset = address.offset;
  return clSetKernelArg(kernel, at++, sizeof offset, &offset);
}

}  // namespace opencl
