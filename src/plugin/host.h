// The table of functions that a plugin calls while it registers, to add operators, kernels and more to a registry.
#pragma once

#include <memory>
#include <vector>

#include "tessera/plugin/operator.h"
#include "tessera/runner/capture/registry.h"
#include "tessera_plugin.h"

namespace tessera::plugin {

// A plugin's operators. They live here because the registry borrows their declarations.
using Operators = std::vector<std::shared_ptr<const Operator>>;

// Adds to `registry` and `operators`, which must live until close(). The first error of any call is kept, so a plugin
// cannot ignore it.
class Host {
 public:
  Host(Registry& registry, Operators& operators);
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  // Returns the table, which lives as long as the host. A plugin may keep it for log() and parallel_for().
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
  // Keeps the error if it is the first.
  Status note(Status status);

 private:
  // Adds the pass ahead of the pass `before`, or at the end.
  Status add_pass(Pass pass, std::string_view before = {});

  Registry& registry_;
  Operators& operators_;
  Status status_;
  tessera_plugin_host table_;
};

}  // namespace tessera::plugin
