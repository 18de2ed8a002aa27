// Registers the room: products with quantised matrices.
#pragma once

#include "tessera/ops/contract/op_list.h"

namespace tessera {

void add_quantised(OpList& list);

}  // namespace tessera
