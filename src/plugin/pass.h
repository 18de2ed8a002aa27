// Makes graph passes from plugins' tables.
#pragma once

#include "tessera/base/status.h"
#include "tessera/compile/pass.h"
#include "tessera_plugin.h"

namespace tessera::plugin {

// Makes a pass from a plugin's table. Returns kInvalidArgument if the table lacks a member. The names in the result
// stay valid while the plugin is loaded.
Result<Pass> make_plugin_pass(const tessera_plugin_pass* given);

}  // namespace tessera::plugin
