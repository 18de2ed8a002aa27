// Registers the room: matrix products.
#pragma once

#include "tessera/ops/contract/op_list.h"

namespace tessera {

void add_linear(OpList& list);
void add_linear_cuda(KernelList& list);  // part of the CUDA backend

}  // namespace tessera
