// Graph passes from outside.
#pragma once

#include "tessera/base/status.h"
#include "tessera/compile/pass.h"
#include "tessera_plugin.h"

namespace tessera::plugin {

// kInvalidArgument for what is missing in the table. The names stay valid as long as the plugin is loaded.
Result<Pass> make_plugin_pass(const tessera_plugin_pass* given);

}  // namespace tessera::plugin
