// CUDA's kernel for all layers of a decode step (decoder_layers.cuh).
#pragma once

#include "tessera/ops/op.h"

namespace tessera {

// In place of every instruction from the first layer's norm to the one behind the last layer, for up to four requests
// of one row each, on Hopper: bfloat16, hidden size 1024, 16 query and 8 KV heads of 128 with head norms, inner size
// 3072 (Qwen3-0.6B). Other sizes, deterministic forwards, forwards that are no decode steps, and those for which an
// attention kernel is named run operator by operator. A bound kernel owns 0.6 to 2.5 MB of device memory.
JoinedKernelDef joined_decoder_layers();

}  // namespace tessera
