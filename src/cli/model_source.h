// What commands take from this process's environment: where models of the hub are, and the cache folder.
#pragma once

#include <string>

#include "tessera/base/status.h"
#include "tessera/cli/options.h"
#include "tessera/model/hub/hub_settings.h"

namespace tessera::cli {

// The hub's settings in this process's environment.
HubSettings hub_settings();

// Puts the folder to read in the place of an id of the hub, fetching the model first if that is asked for. Other
// commands are left as they are.
Status find_model(Command& command, const ModelSource& source);

// The cache folder, which keeps measurements from run to run (options/cache_dir.h).
std::string cache_dir();
// Gives the cache folder to a command that runs an engine.
void use_cache_dir(Command& command);

}  // namespace tessera::cli
