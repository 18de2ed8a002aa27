// Registers the room: products with quantised matrices.
#pragma once

#include "tessera/ops/contract/op_list.h"

namespace tessera {

void add_quantised(OpList& list);
void add_quantised_cuda(KernelList& list);  // part of the CUDA backend

}  // namespace tessera
