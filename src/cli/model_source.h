// Models by a name of the hub: where every command that loads one takes it from.
#pragma once

#include "tessera/base/status.h"
#include "tessera/cli/options.h"
#include "tessera/model/hub_settings.h"

namespace tessera::cli {

// As this process's environment has them.
HubSettings hub_settings();

// Puts the folder to read in the place of an id of the hub, fetching the model first if that is asked for. Other
// commands are left as they are.
Status find_model(Command& command, const ModelSource& source);

}  // namespace tessera::cli
