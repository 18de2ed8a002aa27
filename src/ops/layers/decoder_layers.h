// Declares the CUDA kernel that runs all layers of a decode step (decoder_layers.cuh).
#pragma once

#include "tessera/ops/contract/op.h"

namespace tessera {

// The kernel replaces all operators from the first layer's norm to the norm after the last layer, for one or two
// requests of one row each, on Hopper. The sizes are those of Qwen3-0.6B: bfloat16, hidden size 1024, 16 query heads
// and 8 KV heads of size 128, norms of queries and keys, and inner size 3072.
//
// Other sizes, deterministic forwards, forwards that are not decode steps, forwards with a named attention kernel, and
// processes that share the device by MPS run operator by operator. MPS is excluded because the 128 blocks wait for one
// another and have to run at once.
//
// Because the blocks wait for one another, only one engine of a process may have this kernel on a device. The first
// engine that binds the kernel keeps it until that engine's last bound kernel is destroyed (device_claims.h). Other
// engines run operator by operator, and their logs say so. A bound kernel owns 0.6 to 1.3 MB of device memory.
JoinedKernelDef joined_decoder_layers();

}  // namespace tessera
