// Registers the room: attention over pages of keys and values.
#pragma once

#include "tessera/ops/contract/op_list.h"

namespace tessera {

void add_attention(OpList& list);
void add_attention_cuda(KernelList& list);  // part of the CUDA backend

}  // namespace tessera
