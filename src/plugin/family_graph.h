// Makes the bodies of model families that plugins write as graph text.
#pragma once

#include "tessera/base/status.h"
#include "tessera/model/family.h"
#include "tessera/model/model.h"
#include "tessera_plugin.h"

namespace tessera::plugin {

// Returns the body that `family`'s graph() writes for this model, after checks. Precondition: the family has graph().
Result<FamilyBody> make_family_body(const tessera_plugin_family& family, const ModelConfig& config,
                                    const ModelOptions& options, const ir::OpTable& ops);

}  // namespace tessera::plugin
