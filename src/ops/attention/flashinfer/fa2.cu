// Instantiates FlashInfer's FlashAttention-2 (fa2.cuh) for bfloat16 and float16, and for heads of 64, 128 and 256
// elements. All instantiations are in one translation unit. If each instantiation had its own unit, parsing
// FlashInfer's headers in each would take longer than compiling the instantiations.
#include "tessera/ops/attention/flashinfer/fa2.cuh"

namespace tessera::flashinfer {

#define TESSERA_FA2(T, HEAD_DIM)                                                                                      \
  template Result<std::unique_ptr<BoundOp>> make_fa2<T, HEAD_DIM>(const CudaAttention&, const CudaAttentionPlanner&); \
  template Result<std::unique_ptr<BoundOp>> make_fa2_single_rows<T, HEAD_DIM>(const CudaAttention&,                   \
                                                                              const CudaAttentionPlanner&);           \
  template Result<int> find_fa2_decode_residency<T, HEAD_DIM>();

TESSERA_FA2(__nv_bfloat16, 64)
TESSERA_FA2(__nv_bfloat16, 128)
TESSERA_FA2(__nv_bfloat16, 256)
TESSERA_FA2(__half, 64)
TESSERA_FA2(__half, 128)
TESSERA_FA2(__half, 256)

#undef TESSERA_FA2

}  // namespace tessera::flashinfer
