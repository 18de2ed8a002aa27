// Defines the family of OLMo 2 (Olmo2ForCausalLM).
#pragma once

#include "tessera/model/family.h"

namespace tessera {

ModelFamily olmo2_family();

}  // namespace tessera
