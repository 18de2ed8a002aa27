#include "tessera/ops/flashinfer/decode.cuh"

namespace tessera::flashinfer {
template Result<std::unique_ptr<BoundOp>> make_decode<__nv_bfloat16, 64>(const CudaAttention&,
                                                                         const CudaAttentionPlanner&);
template Result<int> decode_residency<__nv_bfloat16, 64>(std::int64_t);
}  // namespace tessera::flashinfer
