// Implements the table of functions with which a plugin adds operators, kernels and more to a registry while the plugin
// registers.
#pragma once

#include <memory>
#include <vector>

#include "tessera/plugin/operator.h"
#include "tessera/runner/capture/registry.h"
#include "tessera_plugin.h"

namespace tessera::plugin {

// A plugin's operators. This list owns them, because the registry only borrows their declarations.
using Operators = std::vector<std::shared_ptr<const Operator>>;

// Adds a plugin's additions to `registry` and `operators` until close(). Both must outlive the registration. Keeps the
// first error of any call, so that a plugin cannot ignore it.
class Host {
 public:
  Host(Registry& registry, Operators& operators);
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  // Returns the table. It is valid as long as this object. A plugin may keep it for log() and parallel_for().
  const tessera_plugin_host* table() const { return &table_; }
  // Refuses all further additions.
  void close() { table_.registry = nullptr; }
  const Status& status() const { return status_; }

  Status add(const tessera_plugin_operator* given);
  Status add(const tessera_plugin_kernel* given);
  Status add(const tessera_plugin_device* given);
  Status add(const tessera_plugin_compiler* given);
  Status add(const tessera_plugin_pass* given);
  Status add(const tessera_plugin_family* given);
  Status add(const tessera_plugin_chat_format* given);
  // Returns `status`. Keeps `status` if it is the first error.
  Status note(Status status);

 private:
  // Inserts the pass before the pass called `before`. Appends it if `before` is empty.
  Status add_pass(Pass pass, std::string_view before = {});

  Registry& registry_;
  Operators& operators_;
  Status status_;
  tessera_plugin_host table_;
};

}  // namespace tessera::plugin
