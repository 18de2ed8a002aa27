// cuDNN's fused attention behind BoundOp, over the paged cache. libcudnn is loaded when it is first asked for: on a
// machine without it, this kernel serves nothing, and says why.
#pragma once

#include <memory>

#include "tessera/base/status.h"
#include "tessera/ops/cuda_attention.h"

namespace tessera {

class CudaAttentionPlanner;

namespace cudnn {

// Why attention cannot run on cuDNN here: not built in, no library, or one that is too old. Thread-safe.
Status check_available();
bool attention_serves(const AttentionShape& shape, int compute_capability);

// Builds cuDNN's plan for the bucket: some tens of milliseconds. Launches allocate on the host.
// Precondition: it serves the shape, and the planner chose it.
Result<std::unique_ptr<BoundOp>> bind_attention(const CudaAttention& attention, const CudaAttentionPlanner& planner,
                                                Device& device);

}  // namespace cudnn
}  // namespace tessera
