// Registers the room: gated delta nets and what stands around them.
#pragma once

#include "tessera/ops/contract/op_list.h"

namespace tessera {

void add_recurrent(OpList& list);
void add_recurrent_cuda(KernelList& list);  // part of the CUDA backend

}  // namespace tessera
