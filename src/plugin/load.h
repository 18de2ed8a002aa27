// Registries with what plugins bring.
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

// A plugin that registers longer than this hangs.
inline constexpr std::chrono::milliseconds kPluginLimit = std::chrono::seconds(10);

// Lets the plugin in `file` add to `registry`, which nobody else uses meanwhile; the library stays loaded as long as
// that. It is first tried in a child process, so that one that crashes or hangs is an error here. After an error the
// registry may have a part of it, and is of no use. Call it before threads are started (probe.h).
Status add_plugin(const std::string& file, Registry& registry, std::chrono::milliseconds limit = kPluginLimit);

// The built-in registry with what the plugins in `files` bring, added in that order. The error names the file.
Result<std::shared_ptr<const Registry>> load_plugins(const std::vector<std::string>& files);

}  // namespace tessera::plugin
