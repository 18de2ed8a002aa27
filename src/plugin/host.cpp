#include "tessera/plugin/host.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tessera/base/log.h"
#include "tessera/device/cpu/parallel.h"
#include "tessera/ops/built_in_ops.h"
#include "tessera/plugin/c_call.h"
#include "tessera/plugin/c_table.h"
#include "tessera/plugin/chat_format.h"
#include "tessera/plugin/compiler.h"
#include "tessera/plugin/device_events.h"
#include "tessera/plugin/family.h"
#include "tessera/plugin/kernel.h"
#include "tessera/plugin/pass.h"

namespace tessera::plugin {
namespace {

template <class Table>
std::int32_t add_table(const tessera_plugin_host* host, const Table* given, tessera_plugin_error* error) {
  if (host == nullptr || host->registry == nullptr)
    return tessera_plugin_fail(error, TESSERA_PLUGIN_INVALID_ARGUMENT,
                               "nothing is added after tessera_plugin_register has returned");
  auto& to = *static_cast<Host*>(host->registry);
  return to_c(to.note(to.add(given)), error);
}

void write_log(std::int32_t level, const char* message) {
  if (message == nullptr) return;
  if (level <= 0) {
    log_debug("engine", "{}", message);
  } else if (level == 1) {
    log_info("engine", "{}", message);
  } else if (level == 2) {
    log_warn("engine", "{}", message);
  } else {
    log_error("engine", "{}", message);
  }
}

void run_parallel(std::int64_t count, std::int64_t grain, void (*body)(void*, std::int64_t, std::int64_t),
                  void* context) {
  parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end) { body(context, begin, end); });
}

// Returns an empty table, because a plugin's device has only the kernels that plugins add.
const KernelTable& no_kernels() {
  static const KernelTable none{{}};
  return none;
}

}  // namespace

Host::Host(Registry& registry, Operators& operators)
    : registry_(registry),
      operators_(operators),
      table_{.size = sizeof(table_),
             .abi = TESSERA_PLUGIN_ABI,
             .version = TESSERA_VERSION,
             .add_operator = add_table<tessera_plugin_operator>,
             .add_kernel = add_table<tessera_plugin_kernel>,
             .add_device = add_table<tessera_plugin_device>,
             .add_compiler = add_table<tessera_plugin_compiler>,
             .add_pass = add_table<tessera_plugin_pass>,
             .add_family = add_table<tessera_plugin_family>,
             .log = write_log,
             .parallel_for = run_parallel,
             .registry = this,
             .add_chat_format = add_table<tessera_plugin_chat_format>} {}

Status Host::note(Status status) {
  if (status_.ok() && !status.ok()) status_ = status;
  return status;
}

Status Host::add(const tessera_plugin_operator* given) {
  // A native form (operator.h) may use the engine's operators and the operators that this plugin added earlier.
  ir::OpTable ops = built_in_ops();
  for (const auto& op : operators_) TRY(ops.add(op->decl()));
  std::shared_ptr<const Operator> op = TRY(Operator::create(given, ops));
  TRY(registry_.ops.add(op->decl()));
  operators_.push_back(op);
  if (!op->fuses()) return ok_status();
  // The pass must run before the engine's own fusion. Otherwise that fusion would replace operators of the native form,
  // and the pass would no longer find the native form.
  return add_pass(TRY(op->fusing_pass()), "fuse_native_forms");
}

Status Host::add(const tessera_plugin_kernel* given) {
  const std::shared_ptr<const Kernel> kernel = TRY(Kernel::create(given, registry_.ops));
  return registry_.devices.add_kernel(kernel->device(), kernel->def());
}

Status Host::add(const tessera_plugin_device* given) {
  std::shared_ptr<const DeviceTable> table = TRY(DeviceTable::create(given));
  auto backend = std::make_shared<Backend>();
  backend->create_device = [table](const DeviceChoice& choice) -> Result<std::unique_ptr<Device>> {
    return TRY(PluginDevice::open(table, choice.ordinal));
  };
  backend->kernels = no_kernels;
  if (table->get()->versions != nullptr)
    backend->versions = [table] {
      TextSink text;
      call_and_forget([&] { table->get()->versions(table->get()->self, text.get()); });
      return text.take();
    };
  TRY(registry_.devices.add({.name = std::string(table->type()),
                             .takes_choice = table->get()->has_ordinals != 0,
                             .load = [backend]() -> Result<const Backend*> { return backend.get(); }}));
  return registry_.piecewise_backends.add(std::string(table->type()), make_backend(table));
}

Status Host::add(const tessera_plugin_compiler* given) {
  std::shared_ptr<const CompilerTable> table = TRY(CompilerTable::create(given));
  return registry_.compilers.add(std::string(table->name()), [table](const CompilerContext& context) {
    return make_plugin_compiler(table, context);
  });
}

Status Host::add(const tessera_plugin_pass* given) { return add_pass(TRY(make_plugin_pass(given))); }

Status Host::add(const tessera_plugin_family* given) {
  return registry_.families.add(TRY(make_plugin_family(given, registry_.families)));
}

Status Host::add(const tessera_plugin_chat_format* given) {
  return registry_.chat_formats.add(TRY(make_plugin_chat_format(given)));
}

Status Host::add_pass(Pass pass, std::string_view before) {
  const auto has_name = [&](const Pass& known) { return known.name == pass.name; };
  if (std::any_of(registry_.passes.begin(), registry_.passes.end(), has_name))
    return invalid_argument(fmt::format("a pass named \"{}\" is registered already", pass.name));
  const auto place = std::ranges::find(registry_.passes, before, &Pass::name);
  registry_.passes.insert(place, std::move(pass));
  return ok_status();
}

}  // namespace tessera::plugin
