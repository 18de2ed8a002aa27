// Makes model families from the tables of plugins.
#pragma once

#include <memory>

#include "tessera/base/status.h"
#include "tessera/model/family.h"
#include "tessera_plugin.h"

namespace tessera::plugin {

// Makes a family from a plugin's table. kInvalidArgument if the table lacks something, and for a base that is not in
// `known`. Names stay valid while the plugin is loaded.
Result<ModelFamily> make_plugin_family(const tessera_plugin_family* given, const FamilyRegistry& known);

}  // namespace tessera::plugin
