// Makes the body of a model family whose plugin writes the body as graph text.
#pragma once

#include "tessera/base/status.h"
#include "tessera/model/family.h"
#include "tessera/model/model.h"
#include "tessera_plugin.h"

namespace tessera::plugin {

// Checks and returns the body that graph() of `family` writes for this model. Precondition: `family` has graph().
Result<FamilyBody> make_family_body(const tessera_plugin_family& family, const ModelConfig& config,
                                    const ModelOptions& options, const ir::OpTable& ops);

}  // namespace tessera::plugin
