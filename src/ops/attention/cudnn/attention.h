// Binds cuDNN's fused attention for decode over the paged cache as a BoundOp. libcudnn is loaded on the first use. On a
// machine without libcudnn, attention_serves() accepts no shape, and check_available() says why.
//
// Extend uses other kernels for two reasons. cuDNN's extend was slower than FA3 at every size measured on an H200
// (attention_bench). The result of cuDNN's extend also becomes NaN if unused slots of a request's last page contain
// NaN.
#pragma once

#include <memory>

#include "tessera/base/status.h"
#include "tessera/ops/attention/cuda_attention.h"

namespace tessera {

class CudaAttentionPlanner;

namespace cudnn {

// Returns ok if attention can run on cuDNN here. Otherwise the error says why it cannot: cuDNN is not built in, or
// libcudnn is missing or too old. Thread-safe.
Status check_available();
bool attention_serves(const AttentionShape& shape, BatchKind kind, int compute_capability);

// Keeps cuDNN's plans by shape, scale and number of rows, so that a model's layers share them. cuDNN takes 40 to 500 ms
// to make a plan.
class PlanCache {
 public:
  PlanCache();
  ~PlanCache();

 private:
  friend Result<std::unique_ptr<BoundOp>> bind_attention(const CudaAttention& attention,
                                                         const CudaAttentionPlanner& planner, PlanCache& plans,
                                                         Device& device);
  struct Entries;
  std::unique_ptr<Entries> entries_;
};

// Binds cuDNN's attention. Launches allocate host memory, so they should be recorded and replayed. Preconditions:
// attention_serves() accepts the shape, and the planner chose this kernel. `plans` belongs to that planner.
Result<std::unique_ptr<BoundOp>> bind_attention(const CudaAttention& attention, const CudaAttentionPlanner& planner,
                                                PlanCache& plans, Device& device);

}  // namespace cudnn
}  // namespace tessera
