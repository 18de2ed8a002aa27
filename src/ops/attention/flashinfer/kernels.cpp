// Chooses the instantiation of FlashInfer's FlashAttention-2 for an attention's dtype and head size.
// TESSERA_WITH_FLASHINFER means that FlashInfer's headers were present at build time.
#include "tessera/ops/attention/flashinfer/kernels.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <string>

namespace tessera::flashinfer {
namespace {

[[maybe_unused]] bool is_half_width(const AttentionShape& shape) {
  return shape.dtype == ir::DType::kBFloat16 || shape.dtype == ir::DType::kFloat16;
}
[[maybe_unused]] bool has_tuned_head_dim(const AttentionShape& shape) {
  return shape.head_dim == 64 || shape.head_dim == 128 || shape.head_dim == 256;
}

// Returns the error for a kernel that this build does not have. A caller that checks fa2_serves() first never gets this
// error.
[[maybe_unused]] Status not_built(const char* kernel) {
  return internal_error(std::string("attention: this build has no kernel ") + kernel);
}

}  // namespace

bool fa2_serves([[maybe_unused]] const AttentionShape& shape, [[maybe_unused]] BatchKind kind,
                [[maybe_unused]] int compute_capability) {
#ifdef TESSERA_WITH_FLASHINFER
  const bool fits_tile = kind == BatchKind::kExtend || shape.heads / shape.kv_heads <= kFa2DecodeTileRows;
  const bool has_cap = shape.softcap == 0 || shape.head_dim >= kLeastCappedHeadDim;
  return compute_capability >= 80 && is_half_width(shape) && has_tuned_head_dim(shape) && has_cap && fits_tile;
#else
  return false;
#endif
}

#ifdef TESSERA_WITH_FLASHINFER
namespace {

// Calls f.operator()<T, kHeadDim>() for the shape's dtype and head size. Returns an error if FlashInfer has no kernel
// for the head size.
template <class F>
auto with_instantiation(const AttentionShape& shape, F&& f) -> decltype(f.template operator()<__nv_bfloat16, 64>()) {
  const bool bf16 = shape.dtype == ir::DType::kBFloat16;
  switch (shape.head_dim) {
    case 64: return bf16 ? f.template operator()<__nv_bfloat16, 64>() : f.template operator()<__half, 64>();
    case 128: return bf16 ? f.template operator()<__nv_bfloat16, 128>() : f.template operator()<__half, 128>();
    case 256: return bf16 ? f.template operator()<__nv_bfloat16, 256>() : f.template operator()<__half, 256>();
    default: return internal_error("attention: FlashInfer has no head size of " + std::to_string(shape.head_dim));
  }
}

}  // namespace
#endif

Result<std::unique_ptr<BoundOp>> bind_fa2([[maybe_unused]] const CudaAttention& attention,
                                          [[maybe_unused]] const CudaAttentionPlanner& planner) {
#ifdef TESSERA_WITH_FLASHINFER
  return with_instantiation(attention.shape,
                            [&]<class T, int kHeadDim>() { return make_fa2<T, kHeadDim>(attention, planner); });
#else
  return not_built("fa2");
#endif
}

Result<std::unique_ptr<BoundOp>> bind_fa2_single_rows([[maybe_unused]] const CudaAttention& attention,
                                                      [[maybe_unused]] const CudaAttentionPlanner& planner) {
#ifdef TESSERA_WITH_FLASHINFER
  return with_instantiation(
      attention.shape, [&]<class T, int kHeadDim>() { return make_fa2_single_rows<T, kHeadDim>(attention, planner); });
#else
  return not_built("fa2");
#endif
}

Result<int> fa2_decode_residency([[maybe_unused]] const AttentionShape& shape) {
#ifdef TESSERA_WITH_FLASHINFER
  return with_instantiation(shape, [&]<class T, int kHeadDim>() { return find_fa2_decode_residency<T, kHeadDim>(); });
#else
  return not_built("fa2");
#endif
}

}  // namespace tessera::flashinfer
