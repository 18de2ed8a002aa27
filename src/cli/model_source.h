// Reads from this process's environment where the hub's models are and which folder is the cache.
#pragma once

#include <string>

#include "tessera/base/status.h"
#include "tessera/cli/options.h"
#include "tessera/model/hub/hub_settings.h"

namespace tessera::cli {

// Returns the hub's settings from this process's environment.
HubSettings hub_settings();

// Replaces a model's hub id by its folder, and downloads the model first if asked to. Does nothing for a command
// without a model.
Status find_model(Command& command, const ModelSource& source);

// Returns the cache folder, which keeps measurements between runs (options/cache_dir.h).
std::string cache_dir();
// Sets the cache folder of a command that runs an engine.
void use_cache_dir(Command& command);

}  // namespace tessera::cli
