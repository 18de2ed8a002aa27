// Registers the room: row-wise operators: activations, norms, rotation, embedding, elementwise arithmetic, views.
#pragma once

#include "tessera/ops/contract/op_list.h"

namespace tessera {

void add_rows(OpList& list);
void add_rows_cuda(KernelList& list);  // part of the CUDA backend

}  // namespace tessera
