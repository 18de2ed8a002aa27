// Defines the family of GLM-4.5 and 4.6 (Glm4MoeForCausalLM).
#pragma once

#include "tessera/model/family.h"

namespace tessera {

ModelFamily glm4_moe_family();

}  // namespace tessera
