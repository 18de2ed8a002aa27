// Defines the family of Mixtral (MixtralForCausalLM).
#pragma once

#include "tessera/model/family.h"

namespace tessera {

ModelFamily mixtral_family();

}  // namespace tessera
