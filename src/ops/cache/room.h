// Registers the room: what writes keys and values to their pages.
#pragma once

#include "tessera/ops/contract/op_list.h"

namespace tessera {

void add_cache(OpList& list);
void add_cache_cuda(KernelList& list);  // part of the CUDA backend

}  // namespace tessera
