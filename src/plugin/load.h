// Builds registries that include the additions of plugins.
//
//   std::shared_ptr<const Registry> registry = TRY(plugin::load_plugins({"./libmine.so"}));
//   EngineOptions options{.registry = registry};
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/runner/capture/registry.h"

namespace tessera::plugin {

// The time that a plugin has for its registration. A plugin that takes longer counts as hung.
inline constexpr std::chrono::milliseconds kPluginLimit = std::chrono::seconds(10);

// Lets the plugin in `file` register with `registry`. No other thread may use the registry at the same time. The
// library stays loaded as long as the registry exists. The registration first runs in a child process, so that a crash
// or hang of the plugin becomes an error. After an error the registry may be incomplete and must not be used. Call this
// function before threads are started (probe.h).
Status add_plugin(const std::string& file, Registry& registry, std::chrono::milliseconds limit = kPluginLimit);

// Returns the built-in registry with the additions of the plugins in `files`, in this order. An error names the file.
Result<std::shared_ptr<const Registry>> load_plugins(const std::vector<std::string>& files);

}  // namespace tessera::plugin
