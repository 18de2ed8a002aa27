// Defines the family of GLM-4.7-Flash.
#pragma once

#include "tessera/model/family.h"

namespace tessera {

ModelFamily glm4_moe_lite_family();

}  // namespace tessera
