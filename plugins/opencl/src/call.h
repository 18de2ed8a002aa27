// Turns an engine's call into kernel launches. Reads attributes by name, and sets kernel arguments and grid sizes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "stream.h"

namespace opencl {

// A bound operator: its launches in order, or one copy if the operator only copies.
struct Bound {
  struct Copy {
    tessera_plugin_address to;
    tessera_plugin_address from;
    std::size_t bytes;
  };
  std::vector<Launch> launches;
  std::optional<Copy> copy;

  std::int32_t enqueue(Stream& stream, tessera_plugin_error* error) const;
};

std::int64_t attribute_int(const tessera_plugin_node& node, const char* name, std::int64_t otherwise);
double attribute_double(const tessera_plugin_node& node, const char* name, double otherwise);
bool attribute_bool(const tessera_plugin_node& node, const char* name, bool otherwise);
// Returns an empty list if the node has no attribute of that name.
std::vector<std::int64_t> attribute_ints(const tessera_plugin_node& node, const char* name);

// Returns the constant NORM_… of storage.cl that says how the node's norms multiply by their weight.
cl_uint norm_form(const tessera_plugin_node& node);

std::int64_t elements(const tessera_plugin_tensor& tensor);
std::int64_t cols(const tessera_plugin_tensor& tensor);  // the last dimension
std::int64_t rows(const tessera_plugin_tensor& tensor);  // the product of all other dimensions
std::size_t element_bytes(std::int32_t dtype);

// Collects the launches of an operator while the operator is bound.
class Binding {
 public:
  Binding(const tessera_plugin_call& call, Bound& bound, tessera_plugin_error* error)
      : call_(call), bound_(bound), error_(error) {}

  const tessera_plugin_call& call() const { return call_; }
  const tessera_plugin_node& node() const { return *call_.node; }
  const tessera_plugin_tensor& operand(std::size_t i) const { return call_.operands[i]; }
  const tessera_plugin_tensor& result(std::size_t i) const { return call_.results[i]; }
  bool has_operand(std::size_t i) const { return i < call_.num_operands; }
  tessera_plugin_address address(std::size_t i) const { return has_operand(i) ? operand(i).data : kNowhere; }
  Bound& bound() { return bound_; }
  std::int32_t refuse(const std::string& why) const { return fail(error_, TESSERA_PLUGIN_UNIMPLEMENTED, why); }

  // The numbers of work-items in the two dimensions of a launch, x and y, and the sizes of a group. A group's size need
  // not divide the number of work-items, because the last groups may extend past the end.
  struct Grid {
    std::int64_t x;
    std::int64_t y = 1;
    std::int64_t local_x = kItems;
    std::int64_t local_y = 1;
  };
  // Returns a grid of x × y groups, each of kLanes items.
  static Grid groups(std::int64_t x, std::int64_t y = 1) { return {x * kLanes, y, kLanes, 1}; }

  // Adds a launch of `kernel` with these arguments. An address becomes a buffer and an offset; a number is passed in
  // the width of its C++ type. A grid without items adds nothing.
  template <class... Arguments>
  std::int32_t launch(Source source, const char* kernel, StorageTypes types, Grid grid, const Arguments&... arguments) {
    if (grid.x == 0 || grid.y == 0) return TESSERA_PLUGIN_OK;
    Launch made = sized(grid);
    Device& device = *static_cast<Device*>(call_.device);
    OPENCL_TRY(device.programs().create_kernel(source, kernel, types, made.kernel, error_));
    cl_uint at = 0;
    cl_int result = CL_SUCCESS;
    ((result = result == CL_SUCCESS ? set(made.kernel.get(), at, arguments) : result), ...);
    OPENCL_TRY(check(error_, result, std::string("clSetKernelArg ") + std::to_string(at) + " of " + kernel));
    bound_.launches.push_back(std::move(made));
    return TESSERA_PLUGIN_OK;
  }

  static constexpr std::int64_t kItems = 64;  // items in a group of independent items
  static constexpr std::int64_t kLanes = 64;  // items in a group that shares a row: LANES of storage.cl
  static constexpr tessera_plugin_address kNowhere = {nullptr, 0};

 private:
  static Launch sized(Grid grid);
  template <class T>
  static cl_int set(cl_kernel kernel, cl_uint& at, const T& value) {
    return clSetKernelArg(kernel, at++, sizeof value, &value);
  }
  static cl_int set(cl_kernel kernel, cl_uint& at, const tessera_plugin_address& address);

  const tessera_plugin_call& call_;
  Bound& bound_;
  tessera_plugin_error* error_;
};

}  // namespace opencl
