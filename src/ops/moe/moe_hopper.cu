// Binds moe_experts on Hopper (moe_hopper.cuh).
#include "tessera/ops/moe/moe_hopper.h"

#include <algorithm>

#include "tessera/ops/cuda/sm90a_code.h"
#include "tessera/ops/moe/moe_hopper_launch.cuh"
#include "tessera/ops/moe/moe_hopper_packed.cuh"

namespace tessera {
namespace {

using namespace cuda;
using namespace cuda::moe;

// This kernel is used for 16-bit weights if experts have at least this many rows on average. With 16 rows the narrowest
// tile, of 32 tokens, is half full. With fewer rows, reading the weights bounds the time of every kernel, and this
// kernel would also have to copy the rows of x.
constexpr std::int64_t kRowsOfExpert = 16;
// With 4-bit weights one row per expert on average suffices, because some experts have several rows and this kernel
// unpacks their weights once. The forward must also have this many pairs of a token and an expert, because fewer pairs
// were not measured.
constexpr std::int64_t kLeastPackedPairs = 32;

template <class T, bool kGateUp>
Result<HopperLaunch<HopperMatmul<T>>> plain_launch(const ExpertsProblem& p, const HopperMatmul<T>& matmul) {
  constexpr auto kKernel = hopper<T, kGateUp>;
  const LaunchShape shape = TRY(hopper_shape<kGateUp>(p, kKernel, kHopperShared<kGateUp>));
  return HopperLaunch<HopperMatmul<T>>{kKernel, matmul, shape, kHopperShared<kGateUp>};
}
template <class T, bool kGateUp>
Result<HopperLaunch<PackedMatmul<T>>> packed_launch(const ExpertsProblem& p, const HopperMatmul<T>& matmul) {
  constexpr auto kKernel = hopper_packed<T, kGateUp>;
  const LaunchShape shape = TRY(hopper_shape<kGateUp>(p, kKernel, kPackedShared<kGateUp>));
  return HopperLaunch<PackedMatmul<T>>{
      kKernel, {matmul, kGateUp ? p.gate_up_scale : p.down_scale}, shape, kPackedShared<kGateUp>};
}

template <class T>
Result<std::unique_ptr<BoundOp>> bind_typed(const ExpertsProblem& p, std::byte* scratch) {
  const Scratch l = hopper_scratch(p);
  const HopperMatmul<T> gate_up = TRY((hopper_matmul<T, true>(p, l, scratch)));
  const HopperMatmul<T> down = TRY((hopper_matmul<T, false>(p, l, scratch)));
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    if (p.mxfp4)
      return make_hopper<T, RowsOfX::kPaired>(p, TRY((packed_launch<T, true>(p, gate_up))),
                                              TRY((packed_launch<T, false>(p, down))));
  }
  return make_hopper<T, RowsOfX::kCopied>(p, TRY((plain_launch<T, true>(p, gate_up))),
                                          TRY((plain_launch<T, false>(p, down))));
}

}  // namespace

bool hopper_serves(const ExpertsProblem& p) {
  if (p.quantised) return hopper_quantised_serves(p);
  const bool half = p.dtype == ir::DType::kBFloat16 || p.dtype == ir::DType::kFloat16;
  const auto fits = [](std::int64_t k) { return k % 64 == 0 && k <= kPackedBlock * kPackedMostBlocks; };
  const bool shaped = p.mxfp4 ? p.dtype == ir::DType::kBFloat16 && fits(p.hidden) && fits(p.intermediate)
                              : p.hidden % 16 == 0 && p.intermediate % 8 == 0;
  const std::int64_t least = p.mxfp4 ? std::max(p.routed_experts, kLeastPackedPairs) : kRowsOfExpert * p.routed_experts;
  return half && shaped && p.tokens * p.top_k >= least &&
         runs_sm90a_code(reinterpret_cast<const void*>(hopper<__nv_bfloat16, true>));
}

std::size_t hopper_scratch_bytes(const ExpertsProblem& p) { return hopper_scratch(p).size; }

Result<std::unique_ptr<BoundOp>> bind_hopper(const ExpertsProblem& p, std::byte* scratch) {
  if (p.quantised) return bind_hopper_quantised(p, scratch);
  if (p.dtype == ir::DType::kBFloat16) return bind_typed<__nv_bfloat16>(p, scratch);
  return bind_typed<__half>(p, scratch);
}

}  // namespace tessera
