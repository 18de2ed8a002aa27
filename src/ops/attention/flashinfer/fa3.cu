// All instantiations are in one translation unit. If each instantiation had its own unit, parsing CUTLASS in each would
// take longer than compiling the instantiations.
#include "tessera/ops/attention/flashinfer/fa3.cuh"

namespace tessera::flashinfer {

#define TESSERA_FA3(T, HEAD_DIM) \
  template Result<std::unique_ptr<BoundOp>> make_fa3<T, HEAD_DIM>(const CudaAttention&, const CudaAttentionPlanner&);

TESSERA_FA3(__nv_bfloat16, 64)
TESSERA_FA3(__nv_bfloat16, 128)
TESSERA_FA3(__nv_bfloat16, 256)
TESSERA_FA3(__half, 64)
TESSERA_FA3(__half, 128)
TESSERA_FA3(__half, 256)

#undef TESSERA_FA3

}  // namespace tessera::flashinfer
