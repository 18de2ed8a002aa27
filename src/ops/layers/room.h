// Registers the room: the kernel that runs all layers of a decode.
#pragma once

#include "tessera/ops/contract/op_list.h"

namespace tessera {

void add_layers_cuda(KernelList& list);  // part of the CUDA backend

}  // namespace tessera
