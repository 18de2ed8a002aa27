// Defines the family of Phi 3, 3.5 and 4 (Phi3ForCausalLM).
#pragma once

#include "tessera/model/family.h"

namespace tessera {

ModelFamily phi3_family();

}  // namespace tessera
