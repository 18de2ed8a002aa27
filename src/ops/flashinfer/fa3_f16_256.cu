#include "tessera/ops/flashinfer/fa3.cuh"

namespace tessera::flashinfer {
template Result<std::unique_ptr<BoundOp>> make_fa3<__half, 256>(const CudaAttention&, const CudaAttentionPlanner&);
}  // namespace tessera::flashinfer
