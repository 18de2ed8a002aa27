// Binds moe_experts with quantised experts to tensor-core kernels (moe_quantised_readers.cuh).
#include "tessera/ops/moe/moe_quantised_tiles.h"

#include "tessera/ops/moe/moe_launches.cuh"
#include "tessera/ops/moe/moe_quantised_readers.cuh"

namespace tessera {

using namespace cuda::moe;

bool quantised_experts_serve(const ExpertsProblem& p) {
  const bool half = p.dtype == ir::DType::kBFloat16 || p.dtype == ir::DType::kFloat16;
  return half && has_whole_pieces(p.gate_up_matrix) && has_whole_pieces(p.down_matrix);
}

Result<std::unique_ptr<BoundOp>> bind_quantised_experts(const ExpertsProblem& p, std::byte* scratch,
                                                        std::int64_t multiprocessors, bool few) {
  if (p.dtype == ir::DType::kBFloat16)
    return make_tiles<__nv_bfloat16, QuantisedRows, QuantisedCopy>(p, scratch, multiprocessors, few);
  return make_tiles<__half, QuantisedRows, QuantisedCopy>(p, scratch, multiprocessors, few);
}

}  // namespace tessera
