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
#include "tessera/plugin/plan.h"

namespace tessera::plugin {
namespace {

// Converts BindArgs to the struct that a plugin reads. Borrows the BindArgs.
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
  const Backend* backend_;  // result of backend_with_handles()
  void* bound_;
};

// Returns the backend of a built-in device whose streams have native handles. Returns null for a plugin's device and
// for the CPU. The backend is valid until the process ends. Returns kUnimplemented for a device that does not support
// plugins' kernels.
Result<const Backend*> backend_with_handles(const Device& device) {
  if (dynamic_cast<const PluginDevice*>(&device) != nullptr || device.properties().on_host) return nullptr;
  const DeviceRegistry devices = built_in_devices();
  const Backend* backend = TRY(devices.backend(device.properties().type));
  if (backend->launch == nullptr)
    return unimplemented(fmt::format("device {} takes no kernels from plugins", device.properties().type));
  return backend;
}

}  // namespace

Status Kernel::check_shapes(const BindArgs& args) const {
  if (operator_ == nullptr) return ok_status();
  std::vector<ir::Type> operands;
  for (const TensorView& view : args.operands) operands.push_back(TRY(from_c(type_of(view))));
  const std::vector<ir::Type> results = TRY(operator_->infer({operands, args.node}));
  const auto refuse = [](std::string_view found, std::string_view wanted) {
    return internal_error(
        fmt::format("the operator's shape rule is inconsistent: it gives {} for the sizes of this bucket, but its "
                    "answer for all sizes is {} here",
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

Kernel::Kernel(const tessera_plugin_kernel& table, const tessera_plugin_planner& planner,
               std::shared_ptr<const Operator> op)
    : table_(table),
      planner_(planner),
      op_planner_{.make = [this](Device& /*device*/, const PlanArgs& args,
                                 StepBuffer& step) -> Result<std::unique_ptr<OpPlan>> {
                    return TRY(PluginPlan::create(shared_from_this(), args, step));
                  },
                  .bytes_needed = [this](Device& /*device*/,
                                         const PlanArgs& args) { return PluginPlan::bytes_needed(*this, args); }},
      operator_(std::move(op)) {}

Result<std::shared_ptr<const Kernel>> Kernel::checked(const tessera_plugin_kernel& table,
                                                      std::shared_ptr<const Operator> op) {
  TRY(check_set(table.bind, "table", "bind"));
  TRY(check_set(table.enqueue, "table", "enqueue"));
  tessera_plugin_planner planner{};
  if (table.planner != nullptr) {
    planner = TRY(copy_table(table.planner, "planner"));
    TRY(check_set(planner.bytes, "planner", "bytes"));
    TRY(check_set(planner.plan, "planner", "plan"));
  }
  return std::shared_ptr<const Kernel>(new Kernel(table, planner, std::move(op)));
}

Result<std::shared_ptr<const Kernel>> Kernel::create(const tessera_plugin_kernel* given, const ir::OpTable& ops) {
  const tessera_plugin_kernel table = TRY(copy_table(given, "kernel"));
  TRY(check_word(table.op, "kernel's operator"));
  TRY(check_word(table.device, "kernel's device"));
  TRY(check_word(table.name, "kernel"));
  const std::string context = fmt::format("kernel {} of {} on {}", table.name, table.op, table.device);
  std::shared_ptr<const Operator> op = Operator::of(*TRY(ops.get(table.op).with_context(context)));
  if (op != nullptr && !op->is_row_independent() && table.planner == nullptr)
    return invalid_argument(
        fmt::format("{}: the operator is not row-independent, and a kernel without planner cannot "
                    "tell padding from rows that count",
                    context));
  return checked(table, std::move(op)).with_context(context);
}

Result<std::shared_ptr<const Kernel>> Kernel::create_unnamed(const tessera_plugin_kernel* given) {
  const tessera_plugin_kernel table = TRY(copy_table(given, "kernel"));
  TRY(check_word(table.name, "kernel"));
  const std::string context = fmt::format("kernel {}", table.name);
  if (table.planner != nullptr) return invalid_argument(fmt::format("{}: a compiler's kernel has no planner", context));
  return checked(table, nullptr).with_context(context);
}

KernelDef Kernel::def() const {
  KernelDef def{.op = table_.op,
                .name = table_.name,
                .bind = [self = shared_from_this()](const BindArgs& args) { return self->bind(args); },
                .planner = table_.planner == nullptr ? nullptr : &op_planner_};
  if (table_.workspace_bytes != nullptr)
    def.workspace_bytes = [self = shared_from_this()](const BindArgs& args) { return self->workspace_bytes(args); };
  return def;
}

Result<std::unique_ptr<BoundOp>> Kernel::bind(const BindArgs& args) const {
  TRY(check_shapes(args));
  const Backend* backend = TRY(backend_with_handles(args.device));
  tessera_plugin_address plan{};
  if (planner() != nullptr) plan = to_c(TRY(find_plugin_plan(args))->address());
  const CCall c(args, plan);
  void* bound = nullptr;
  TRY(tessera::plugin::call([&](tessera_plugin_error* error) {
        return table_.bind(table_.self, c.get(), &bound, error);
      }).with_context(table_.name));
  return std::make_unique<PluginOp>(shared_from_this(), args, backend, bound);
}

Result<std::size_t> Kernel::workspace_bytes(const BindArgs& args) const {
  if (table_.workspace_bytes == nullptr) return std::size_t{0};
  const CCall c(args, {});
  std::size_t bytes = 0;
  TRY(tessera::plugin::call([&](tessera_plugin_error* error) {
        return table_.workspace_bytes(table_.self, c.get(), &bytes, error);
      }).with_context(table_.name));
  return bytes;
}

}  // namespace tessera::plugin
