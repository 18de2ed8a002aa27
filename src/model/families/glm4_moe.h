// Phi 3, 3.5 and 4 (Phi3ForCausalLM).
#pragma once

#include "tessera/model/family.h"

namespace tessera {

ModelFamily glm4_moe_family();

}  // namespace tessera
