// Registers the room: operators of vision towers.
#pragma once

#include "tessera/ops/contract/op_list.h"

namespace tessera {

void add_vision(OpList& list);
void add_vision_cuda(KernelList& list);  // part of the CUDA backend

}  // namespace tessera
