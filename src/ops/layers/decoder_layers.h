// CUDA's kernel for all layers of a decode step (decoder_layers.cuh).
#pragma once

#include "tessera/ops/contract/op.h"

namespace tessera {

// In place of every instruction from the first layer's norm to the one behind the last layer, for one and two requests
// of one row each, on Hopper: bfloat16, hidden size 1024, 16 query and 8 KV heads of 128 with head norms, inner size
// 3072 (Qwen3-0.6B). Other sizes, deterministic forwards, forwards that are no decode steps, and those for which an
// attention kernel is named run operator by operator, as do processes that share the device by MPS: 128 blocks wait for
// one another and have to run at once. For the same reason one engine of a process has the kernel on a device, the
// first that binds it, until its last bound one is gone (device_claims.h); others run operator by operator, and their
// logs say so. A bound kernel owns 0.6 to 1.3 MB of device memory.
JoinedKernelDef joined_decoder_layers();

}  // namespace tessera
