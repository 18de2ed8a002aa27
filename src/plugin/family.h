// Model families from outside.
#pragma once

#include <memory>

#include "tessera/base/status.h"
#include "tessera/model/family.h"
#include "tessera_plugin.h"

namespace tessera::plugin {

// kInvalidArgument for what is missing in the table, and for a base that is not in `known`. Names stay valid as long as
// the plugin is loaded.
Result<ModelFamily> make_plugin_family(const tessera_plugin_family* given, const FamilyRegistry& known);

}  // namespace tessera::plugin
