#include "tessera/ops/flashinfer/fa3.cuh"

namespace tessera::flashinfer {
template Result<std::unique_ptr<BoundOp>> make_fa3<__nv_bfloat16, 128>(const CudaAttention&,
                                                                       const CudaAttentionPlanner&);
}  // namespace tessera::flashinfer
