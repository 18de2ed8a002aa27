// Registers the room: routing and experts.
#pragma once

#include "tessera/ops/contract/op_list.h"

namespace tessera {

void add_moe(OpList& list);
void add_moe_cuda(KernelList& list);  // part of the CUDA backend

}  // namespace tessera
