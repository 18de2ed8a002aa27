// Registers the room: what turns logits into tokens and log-probabilities.
#pragma once

#include "tessera/ops/contract/op_list.h"

namespace tessera {

void add_sampling(OpList& list);
void add_sampling_cuda(KernelList& list);  // part of the CUDA backend

}  // namespace tessera
