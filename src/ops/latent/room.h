// Registers the room: attention over latents and its store.
#pragma once

#include "tessera/ops/contract/op_list.h"

namespace tessera {

void add_latent(OpList& list);
void add_latent_cuda(KernelList& list);  // part of the CUDA backend

}  // namespace tessera
