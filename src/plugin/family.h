// Makes model families from plugins' tables.
#pragma once

#include <memory>

#include "tessera/base/status.h"
#include "tessera/model/family.h"
#include "tessera_plugin.h"

namespace tessera::plugin {

// Makes a family from a plugin's table. Returns kInvalidArgument if the table lacks a member or its base is not in
// `known`. The names in the result stay valid while the plugin is loaded.
Result<ModelFamily> make_plugin_family(const tessera_plugin_family* given, const FamilyRegistry& known);

}  // namespace tessera::plugin
