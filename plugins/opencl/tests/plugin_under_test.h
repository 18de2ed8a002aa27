// Runs the plugin as an engine does, but without an engine: loads its library, keeps its tables, and runs single
// operators on its device. Results are compared with the engine's own CPU kernels (the tests link the engine; the
// plugin does not).
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tessera/ops/contract/op_test_util.h"
#include "tessera_plugin.h"

namespace opencl_test {

using tessera::testing::HostTensor;
namespace ir = tessera::ir;

// Holds a call's message for a test's output.
class Message {
 public:
  Message() : error_{sizeof(error_), text_, sizeof text_} { text_[0] = 0; }
  tessera_plugin_error* get() { return &error_; }
  const char* text() const { return text_; }

 private:
  char text_[2000];
  tessera_plugin_error error_;
};

// Fails the test if the call failed.
#define EXPECT_CALL_OK(message, call) EXPECT_EQ((call), TESSERA_PLUGIN_OK) << #call << ": " << (message).text()

// The plugin with its device 0 and one stream. The process has one such object.
class Plugin {
 public:
  // Returns null if the library or the device cannot be opened; see OPENCL_REQUIRE_PLUGIN.
  static Plugin* get() {
    static const std::unique_ptr<Plugin> plugin = open();
    return plugin.get();
  }
  ~Plugin() {
    if (stream_ != nullptr) table_->free_stream(stream_);
    if (device_ != nullptr) table_->close(device_);
  }

  const tessera_plugin_device& table() const { return *table_; }
  void* device() const { return device_; }
  void* stream() const { return stream_; }
  const tessera_plugin_kernel* kernel(std::string_view op) const {
    const auto found = kernels_.find(std::string(op));
    return found == kernels_.end() ? nullptr : found->second;
  }

 private:
  static std::unique_ptr<Plugin> open() {
    std::unique_ptr<Plugin> plugin(new Plugin);
    void* library = dlopen(TESSERA_OPENCL_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      std::fprintf(stderr, "%s\n", dlerror());
      return nullptr;
    }
    const auto add = reinterpret_cast<decltype(&tessera_plugin_register)>(dlsym(library, "tessera_plugin_register"));
    tessera_plugin_host host = {};
    host.size = sizeof host;
    host.abi = TESSERA_PLUGIN_ABI;
    host.registry = plugin.get();
    host.add_device = [](const tessera_plugin_host* h, const tessera_plugin_device* table, tessera_plugin_error*) {
      static_cast<Plugin*>(h->registry)->table_ = table;
      return std::int32_t{TESSERA_PLUGIN_OK};
    };
    host.add_kernel = [](const tessera_plugin_host* h, const tessera_plugin_kernel* kernel, tessera_plugin_error*) {
      static_cast<Plugin*>(h->registry)->kernels_[kernel->op] = kernel;
      return std::int32_t{TESSERA_PLUGIN_OK};
    };
    Message message;
    tessera_plugin_properties properties = {};
    properties.size = sizeof properties;
    if (add == nullptr || add(&host, message.get()) != TESSERA_PLUGIN_OK ||
        plugin->table_->open(plugin->table_->self, 0, &plugin->device_, &properties, message.get()) !=
            TESSERA_PLUGIN_OK ||
        plugin->table_->create_stream(plugin->device_, "test", &plugin->stream_, message.get()) != TESSERA_PLUGIN_OK) {
      std::fprintf(stderr, "%s\n", message.text());
      return nullptr;
    }
    return plugin;
  }

  const tessera_plugin_device* table_ = nullptr;
  std::map<std::string, const tessera_plugin_kernel*> kernels_;
  void* device_ = nullptr;
  void* stream_ = nullptr;
};

// Place this at the start of a test. It skips the test if the machine has no driver. If CI is set, a driver is
// required.
#define OPENCL_REQUIRE_PLUGIN()                                                       \
  if (opencl_test::Plugin::get() == nullptr && std::getenv("CI") == nullptr)          \
    GTEST_SKIP() << "no device of OpenCL (pocl-opencl-icd); standard error says why"; \
  ASSERT_NE(opencl_test::Plugin::get(), nullptr)

// Device memory with a tensor's content, at an offset, so that kernels that ignore offsets are found.
class DeviceTensor {
 public:
  static constexpr std::size_t kOffset = 256;
  explicit DeviceTensor(const HostTensor& tensor) : bytes_(tensor.bytes.size()) {
    const Plugin& plugin = *Plugin::get();
    Message message;
    EXPECT_CALL_OK(message,
                   plugin.table().allocate(plugin.device(), bytes_ + kOffset, "test", &handle_, message.get()));
    load(tensor);
  }
  ~DeviceTensor() { Plugin::get()->table().free_memory(Plugin::get()->device(), handle_); }
  DeviceTensor(const DeviceTensor&) = delete;
  DeviceTensor& operator=(const DeviceTensor&) = delete;

  tessera_plugin_address address() const { return {handle_, kOffset}; }
  void load(const HostTensor& tensor) {
    if (bytes_ == 0) return;
    Message message;
    EXPECT_CALL_OK(message, Plugin::get()->table().upload(Plugin::get()->stream(), address(), tensor.bytes.data(),
                                                          bytes_, message.get()));
  }
  void fetch(HostTensor& tensor) const {
    if (bytes_ == 0) return;
    Message message;
    const Plugin& plugin = *Plugin::get();
    EXPECT_CALL_OK(message,
                   plugin.table().download(plugin.stream(), tensor.bytes.data(), address(), bytes_, message.get()));
    EXPECT_CALL_OK(message, plugin.table().synchronize(plugin.stream(), message.get()));
  }

 private:
  std::size_t bytes_;
  void* handle_ = nullptr;
};

inline std::int32_t c_dtype(ir::DType dtype) {
  switch (dtype) {
    case ir::DType::kFloat32: return TESSERA_PLUGIN_F32;
    case ir::DType::kFloat16: return TESSERA_PLUGIN_F16;
    case ir::DType::kBFloat16: return TESSERA_PLUGIN_BF16;
    case ir::DType::kInt32: return TESSERA_PLUGIN_I32;
    case ir::DType::kInt64: return TESSERA_PLUGIN_I64;
    case ir::DType::kUInt8: return TESSERA_PLUGIN_U8;
    case ir::DType::kFloat8E4M3: return TESSERA_PLUGIN_F8E4M3;
  }
  return -1;
}

inline tessera_plugin_tensor c_tensor(const HostTensor& tensor, tessera_plugin_address data) {
  tessera_plugin_tensor made = {};
  made.data = data;
  made.dtype = c_dtype(tensor.dtype);
  made.rank = static_cast<std::int32_t>(tensor.dims.size());
  std::copy(tensor.dims.begin(), tensor.dims.end(), made.dims);
  return made;
}

// An operator on the device, bound once and run eagerly and as a command buffer.
class DeviceOp {
 public:
  // Binds the operator. `plan` is the address of its plan, if it has one.
  DeviceOp(const ir::OpDecl& decl, const std::vector<HostTensor>& operands, const ir::Attributes& attributes,
           const tessera_plugin_limits& limits, tessera_plugin_address plan = {}, bool refused = false)
      : node_(tessera::testing::make_node(decl, operands.size(), attributes)) {
    const auto types = tessera::testing::infer_types(decl, types_of(operands), attributes);
    EXPECT_TRUE(types.ok()) << types.status().to_string();
    for (const ir::Type& type : *types)
      results_.push_back(tessera::testing::poisoned_tensor(type.dtype, ir::evaluate(type.shape, {}).value()));
    for (const HostTensor& tensor : operands) memory_.push_back(std::make_unique<DeviceTensor>(tensor));
    for (const HostTensor& tensor : results_) memory_.push_back(std::make_unique<DeviceTensor>(tensor));
    operands_ = operands;
    bind(decl, limits, plan);
    EXPECT_EQ(bound(), !refused) << decl.name << ": " << message_.text();
  }
  ~DeviceOp() {
    if (graph_ != nullptr) Plugin::get()->table().free_graph(graph_);
    if (bound_ != nullptr) kernel_->release(bound_);
  }
  DeviceOp(const DeviceOp&) = delete;
  DeviceOp& operator=(const DeviceOp&) = delete;

  // Returns the message with which a kernel refuses the operator. Fails the test if the kernel accepts the operator.
  static std::string refusal(const ir::OpDecl& decl, const std::vector<HostTensor>& operands,
                             const ir::Attributes& attributes) {
    tessera_plugin_limits limits = {};
    limits.size = sizeof limits;
    return DeviceOp(decl, operands, attributes, limits, {}, /*refused=*/true).message_.text();
  }

  bool bound() const { return bound_ != nullptr; }
  void enqueue() {
    Message message;
    EXPECT_CALL_OK(message, kernel_->enqueue(bound_, Plugin::get()->stream(), message.get()));
  }
  // Returns the number of recorded commands.
  std::int64_t record() {
    const Plugin& plugin = *Plugin::get();
    Message message;
    EXPECT_CALL_OK(message, plugin.table().begin_recording(plugin.stream(), "test", message.get()));
    enqueue();
    std::int64_t nodes = 0;
    std::int64_t bytes = 0;
    EXPECT_CALL_OK(message, plugin.table().end_recording(plugin.stream(), &graph_, &nodes, &bytes, message.get()));
    return nodes;
  }
  void replay() {
    const Plugin& plugin = *Plugin::get();
    Message message;
    EXPECT_CALL_OK(message, plugin.table().launch_graph(graph_, plugin.stream(), message.get()));
  }
  // Writes operands and poisons results.
  void load(const std::vector<HostTensor>& operands) {
    for (std::size_t i = 0; i < operands.size(); ++i) memory_[i]->load(operands[i]);
    for (std::size_t i = 0; i < results_.size(); ++i) memory_[operands_.size() + i]->load(results_[i]);
  }
  std::vector<HostTensor> results() const { return fetch(results_, operands_.size()); }
  std::vector<HostTensor> operands() const { return fetch(operands_, 0); }

 private:
  static std::vector<ir::Type> types_of(const std::vector<HostTensor>& tensors) {
    std::vector<ir::Type> types;
    for (const HostTensor& tensor : tensors) types.push_back(tensor.type());
    return types;
  }
  std::vector<HostTensor> fetch(std::vector<HostTensor> tensors, std::size_t first) const {
    for (std::size_t i = 0; i < tensors.size(); ++i) memory_[first + i]->fetch(tensors[i]);
    return tensors;
  }
  static tessera_plugin_attribute c_attribute(const std::string& name, const ir::Attribute& value) {
    tessera_plugin_attribute made = {};
    made.name = name.c_str();
    made.kind = static_cast<std::int32_t>(value.index());
    if (const auto* boolean = std::get_if<bool>(&value)) made.integer = *boolean ? 1 : 0;
    if (const auto* integer = std::get_if<std::int64_t>(&value)) made.integer = *integer;
    if (const auto* number = std::get_if<double>(&value)) made.number = *number;
    if (const auto* text = std::get_if<std::string>(&value)) made.string = text->c_str();
    if (const auto* ints = std::get_if<std::vector<std::int64_t>>(&value)) {
      made.ints = ints->data();
      made.num_ints = ints->size();
    }
    return made;
  }
  void bind(const ir::OpDecl& decl, const tessera_plugin_limits& limits, tessera_plugin_address plan) {
    kernel_ = Plugin::get()->kernel(decl.name);
    if (kernel_ == nullptr) {
      ADD_FAILURE() << "the plugin has no kernel for " << decl.name;
      return;
    }
    std::vector<tessera_plugin_attribute> attributes;
    for (const auto& [name, value] : node_.attributes) attributes.push_back(c_attribute(name, value));
    tessera_plugin_node node = {};
    node.size = sizeof node;
    node.op = node_.op.c_str();
    node.attributes = attributes.data();
    node.num_attributes = attributes.size();
    node.num_operands = operands_.size();
    std::vector<tessera_plugin_tensor> tensors;
    for (std::size_t i = 0; i < memory_.size(); ++i)
      tensors.push_back(
          c_tensor(i < operands_.size() ? operands_[i] : results_[i - operands_.size()], memory_[i]->address()));
    tessera_plugin_call call = {};
    call.size = sizeof call;
    call.node = &node;
    call.operands = tensors.data();
    call.num_operands = operands_.size();
    call.results = tensors.data() + operands_.size();
    call.num_results = results_.size();
    call.plan = plan;
    call.limits = &limits;
    call.device = Plugin::get()->device();
    if (kernel_->bind(kernel_->self, &call, &bound_, message_.get()) != TESSERA_PLUGIN_OK) bound_ = nullptr;
  }

  ir::Node node_;
  std::vector<HostTensor> operands_;
  std::vector<HostTensor> results_;
  std::vector<std::unique_ptr<DeviceTensor>> memory_;  // operands, then results
  const tessera_plugin_kernel* kernel_ = nullptr;
  Message message_;  // message of bind()
  void* bound_ = nullptr;
  void* graph_ = nullptr;
};

}  // namespace opencl_test
