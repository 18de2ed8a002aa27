#include "tessera/plugin/kernel.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "tessera/base/hash.h"
#include "tessera/device/cpu/cpu_device.h"
#include "tessera/plugin/c_call.h"
#include "tessera/plugin/c_table.h"
#include "tessera/plugin/c_values.h"
#include "tessera/plugin/device.h"
#include "tessera/plugin/operator.h"
#include "tessera/plugin/plan.h"
#include "tessera/plugin/process_names.h"

namespace tessera::plugin {
namespace {

ProcessNames<const Kernel>& names() {
  static ProcessNames<const Kernel> kernels;
  return kernels;
}

std::string key(std::string_view op, std::string_view device) { return fmt::format("{} on {}", op, device); }

Result<std::shared_ptr<const Kernel>> get(const BindArgs& args) {
  const std::string& device = args.device.properties().type;
  std::shared_ptr<const Kernel> kernel = Kernel::find(args.node.op, device);
  if (kernel == nullptr)
    return internal_error(
        fmt::format("the plugin of the kernel for {} is not loaded any more", key(args.node.op, device)));
  return kernel;
}

Result<std::unique_ptr<BoundOp>> bind_by_name(const BindArgs& args) { return TRY(get(args))->bind(args); }
Result<std::size_t> workspace_by_name(const BindArgs& args) { return TRY(get(args))->workspace_bytes(args); }

// BindArgs in the form for a plugin. Borrows them.
class CCall {
 public:
  CCall(const BindArgs& args, tessera_plugin_address plan)
      : node_(args.node, types_of(args.operands)),
        operands_(tensors_of(args.operands)),
        results_(tensors_of(args.results)),
        limits_(to_c(args.context.limits)) {
    auto* device = dynamic_cast<PluginDevice*>(&args.device);
    call_ = {.size = sizeof(call_),
             .node = node_.get(),
             .operands = operands_.data(),
             .num_operands = operands_.size(),
             .results = results_.data(),
             .num_results = results_.size(),
             .workspace = to_c(args.workspace),
             .plan = plan,
             .limits = &limits_,
             .is_decode = args.context.batch_kind == BatchKind::kDecode ? 1 : 0,
             .device = device == nullptr ? nullptr : device->handle()};
  }
  CCall(const CCall&) = delete;
  CCall& operator=(const CCall&) = delete;
  const tessera_plugin_call* get() const { return &call_; }

 private:
  static std::vector<tessera_plugin_type> types_of(std::span<const TensorView> views) {
    std::vector<tessera_plugin_type> types;
    for (const TensorView& view : views) types.push_back(type_of(view));
    return types;
  }
  static std::vector<tessera_plugin_tensor> tensors_of(std::span<const TensorView> views) {
    std::vector<tessera_plugin_tensor> tensors;
    for (const TensorView& view : views) tensors.push_back(to_c(view));
    return tensors;
  }

  CNode node_;
  std::vector<tessera_plugin_tensor> operands_;
  std::vector<tessera_plugin_tensor> results_;
  tessera_plugin_limits limits_;
  tessera_plugin_call call_;
};

class PluginOp final : public BoundOp {
 public:
  PluginOp(std::shared_ptr<const Kernel> kernel, const BindArgs& args, const Backend* backend, void* bound)
      : kernel_(std::move(kernel)),
        on_plugin_device_(dynamic_cast<PluginDevice*>(&args.device) != nullptr),
        backend_(backend),
        bound_(bound) {}
  ~PluginOp() override {
    if (kernel_->table().release != nullptr) call_and_forget([this] { kernel_->table().release(bound_); });
  }
  PluginOp(const PluginOp&) = delete;
  PluginOp& operator=(const PluginOp&) = delete;

  Status enqueue(Stream& stream) const override {
    if (on_plugin_device_)
      return as_plugin(stream).launch(kernel_->name(), [this](void* handle) { return run(handle); });
    if (backend_ != nullptr)
      return backend_->launch(stream, kernel_->table().name, [this](void* handle) { return run(handle); });
    return as_cpu(stream).launch(kernel_->table().name, [this] { return run(nullptr); });
  }

 private:
  Status run(void* stream) const {
    return call([&](tessera_plugin_error* error) { return kernel_->table().enqueue(bound_, stream, error); });
  }

  std::uint64_t choice() const override {
    Hasher hasher;
    hasher.add(kernel_->op());
    hasher.add(kernel_->name());
    if (kernel_->table().variant != nullptr) hasher.add(kernel_->table().variant(bound_));
    return hasher.finish().low;
  }

  std::shared_ptr<const Kernel> kernel_;
  bool on_plugin_device_;
  const Backend* backend_;  // for a device whose streams have native handles; null for others
  void* bound_;
};

// Returns the backend of a device that is not a plugin's and whose streams have handles. It is valid until the process
// ends.
Result<const Backend*> backend_with_handles(const Device& device) {
  if (dynamic_cast<const PluginDevice*>(&device) != nullptr || device.properties().on_host) return nullptr;
  const DeviceRegistry devices = built_in_devices();
  const Backend* backend = TRY(devices.backend(device.properties().type));
  if (backend->launch == nullptr)
    return unimplemented(fmt::format("device {} takes no kernels from plugins", device.properties().type));
  return backend;
}

// Checks that the shape rule gives the same types for this bucket's numbers as it gave for the symbols.
Status check_shapes(const BindArgs& args) {
  const std::shared_ptr<const Operator> op = Operator::find(args.node.op);
  if (op == nullptr) return ok_status();
  std::vector<ir::Type> operands;
  for (const TensorView& view : args.operands) operands.push_back(TRY(from_c(type_of(view))));
  const std::vector<ir::Type> results = TRY(op->infer({operands, args.node}));
  const auto refuse = [](std::string_view found, std::string_view wanted) {
    return internal_error(
        fmt::format("the operator's shape rule breaks its word: for the sizes of this bucket it says "
                    "{}, for all sizes it said what is {} here",
                    found, wanted));
  };
  if (results.size() != args.results.size())
    return refuse(fmt::format("{} results", results.size()), fmt::format("{} results", args.results.size()));
  for (std::size_t i = 0; i < results.size(); ++i) {
    const ir::Type wanted = TRY(from_c(type_of(args.results[i])));
    if (results[i] != wanted) return refuse(results[i].to_string(), wanted.to_string());
  }
  return ok_status();
}

}  // namespace

Result<std::shared_ptr<const Kernel>> Kernel::checked(const tessera_plugin_kernel& table) {
  TRY(check_set(table.bind, "table", "bind"));
  TRY(check_set(table.enqueue, "table", "enqueue"));
  tessera_plugin_planner planner{};
  if (table.planner != nullptr) {
    planner = TRY(copy_table(table.planner, "planner"));
    TRY(check_set(planner.bytes, "planner", "bytes"));
    TRY(check_set(planner.plan, "planner", "plan"));
  }
  return std::shared_ptr<const Kernel>(new Kernel(table, planner));
}

Result<std::shared_ptr<const Kernel>> Kernel::create(const tessera_plugin_kernel* given) {
  const tessera_plugin_kernel table = TRY(copy_table(given, "kernel"));
  TRY(check_word(table.op, "kernel's operator"));
  TRY(check_word(table.device, "kernel's device"));
  TRY(check_word(table.name, "kernel"));
  const std::string context = fmt::format("kernel {} of {}", table.name, key(table.op, table.device));
  std::shared_ptr<const Kernel> kernel = TRY(checked(table).with_context(context));
  const std::shared_ptr<const Operator> op = Operator::find(table.op);
  if (op != nullptr && !op->is_row_independent() && table.planner == nullptr)
    return invalid_argument(
        fmt::format("{}: the operator is not row-independent, and a kernel without planner cannot "
                    "tell padding from rows that count",
                    context));
  kernel = names().add(key(table.op, table.device), given, [&] { return kernel; });
  if (kernel == nullptr)
    return invalid_argument(fmt::format("{}: another plugin of this process has a kernel for that", context));
  return kernel;
}

Result<std::shared_ptr<const Kernel>> Kernel::create_unnamed(const tessera_plugin_kernel* given) {
  const tessera_plugin_kernel table = TRY(copy_table(given, "kernel"));
  TRY(check_word(table.name, "kernel"));
  const std::string context = fmt::format("kernel {}", table.name);
  if (table.planner != nullptr) return invalid_argument(fmt::format("{}: a compiler's kernel has no planner", context));
  return checked(table).with_context(context);
}

std::shared_ptr<const Kernel> Kernel::find(std::string_view op, std::string_view device) {
  return names().find(key(op, device));
}

KernelDef Kernel::def() const {
  return {.op = table_.op,
          .name = table_.name,
          .bind = bind_by_name,
          .workspace_bytes = table_.workspace_bytes == nullptr ? nullptr : workspace_by_name,
          .planner = table_.planner == nullptr ? nullptr : &kPluginPlanner};
}

Result<std::unique_ptr<BoundOp>> Kernel::bind(const BindArgs& args) const {
  TRY(check_shapes(args));
  const Backend* backend = TRY(backend_with_handles(args.device));
  tessera_plugin_address plan{};
  if (planner() != nullptr) plan = to_c(TRY(find_plugin_plan(args))->address());
  const CCall c(args, plan);
  void* bound = nullptr;
  TRY(tessera::plugin::call(
      [&](tessera_plugin_error* error) { return table_.bind(table_.self, c.get(), &bound, error); }));
  return std::make_unique<PluginOp>(shared_from_this(), args, backend, bound);
}

Result<std::size_t> Kernel::workspace_bytes(const BindArgs& args) const {
  if (table_.workspace_bytes == nullptr) return std::size_t{0};
  const CCall c(args, {});
  std::size_t bytes = 0;
  TRY(tessera::plugin::call(
      [&](tessera_plugin_error* error) { return table_.workspace_bytes(table_.self, c.get(), &bytes, error); }));
  return bytes;
}

}  // namespace tessera::plugin
