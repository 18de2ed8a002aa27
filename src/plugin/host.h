// The table of functions with which a plugin adds to a registry, while it registers.
#pragma once

#include <memory>
#include <vector>

#include "tessera/plugin/kernel.h"
#include "tessera/plugin/operator.h"
#include "tessera/runner/capture/registry.h"
#include "tessera_plugin.h"

namespace tessera::plugin {

// What a plugin brought: declarations and adapters that the registry borrows.
struct Contents {
  std::vector<std::shared_ptr<const Operator>> operators;
  std::vector<std::shared_ptr<const Kernel>> kernels;
};

// Adds to `registry` and `contents`, which outlive close(). The first error of any call is kept: a plugin cannot ignore
// it.
class Host {
 public:
  Host(Registry& registry, Contents& contents);
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  // Lives as long as this; a plugin may keep it for log() and parallel_for().
  const tessera_plugin_host* table() const { return &table_; }
  // From here nothing is added any more.
  void close() { table_.registry = nullptr; }
  const Status& status() const { return status_; }

  Status add(const tessera_plugin_operator* given);
  Status add(const tessera_plugin_kernel* given);
  Status add(const tessera_plugin_device* given);
  Status add(const tessera_plugin_compiler* given);
  Status add(const tessera_plugin_pass* given);
  Status add(const tessera_plugin_family* given);
  Status add(const tessera_plugin_chat_format* given);
  // Keeps the first error.
  Status note(Status status);

 private:
  // Ahead of the pass of that name, or last.
  Status add_pass(Pass pass, std::string_view before = {});

  Registry& registry_;
  Contents& contents_;
  Status status_;
  tessera_plugin_host table_;
};

}  // namespace tessera::plugin
