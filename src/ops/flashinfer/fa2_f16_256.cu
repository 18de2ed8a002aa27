#include "tessera/ops/flashinfer/fa2.cuh"

namespace tessera::flashinfer {
template Result<std::unique_ptr<BoundOp>> make_fa2<__half, 256>(const CudaAttention&, const CudaAttentionPlanner&);
template Result<std::unique_ptr<BoundOp>> make_fa2_single_rows<__half, 256>(const CudaAttention&,
                                                                            const CudaAttentionPlanner&);
template Result<int> find_fa2_decode_residency<__half, 256>();
}  // namespace tessera::flashinfer
