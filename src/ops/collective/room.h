// Registers the room: exchanges between ranks and stages.
#pragma once

#include "tessera/ops/contract/op_list.h"

namespace tessera {

void add_collective(OpList& list);
void add_collective_cuda(KernelList& list);  // part of the CUDA backend

}  // namespace tessera
