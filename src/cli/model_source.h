// What commands read from this process's environment: where the hub's models are, and the cache folder.
#pragma once

#include <string>

#include "tessera/base/status.h"
#include "tessera/cli/options.h"
#include "tessera/model/hub/hub_settings.h"

namespace tessera::cli {

// Returns the hub's settings in this process's environment.
HubSettings hub_settings();

// Replaces an id of the hub by the folder to read, and downloads the model first if asked for. Commands without a model
// are unchanged.
Status find_model(Command& command, const ModelSource& source);

// Returns the cache folder, which keeps measurements between runs (options/cache_dir.h).
std::string cache_dir();
// Sets the cache folder of a command that runs an engine.
void use_cache_dir(Command& command);

}  // namespace tessera::cli
