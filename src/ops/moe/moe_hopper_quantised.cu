// Binds moe_experts with quantised experts on Hopper (moe_hopper_quantised.cuh).
#include "tessera/ops/moe/moe_hopper_quantised.h"

#include "tessera/ops/cuda/sm90a_code.h"
#include "tessera/ops/moe/moe_hopper_launch.cuh"
#include "tessera/ops/moe/moe_hopper_quantised.cuh"

namespace tessera {
namespace {

using namespace cuda;
using namespace cuda::moe;
using T = __nv_bfloat16;

// This kernel is used if experts have at least this many rows on average. With fewer, most experts have no row.
constexpr std::int64_t kRowsOfExpert = 1;

template <Values kValues, bool kGateUp>
Result<HopperLaunch<HopperQuantised<T>>> quantised_launch(const ExpertsProblem& p, const Scratch& l,
                                                          std::byte* scratch) {
  constexpr auto kKernel = hopper_quantised<T, kValues, kGateUp>;
  const QuantisedMatrix& matrix = kGateUp ? p.gate_up_matrix : p.down_matrix;
  const HopperMatmul<T> matmul = TRY((hopper_matmul<T, kGateUp>(p, l, scratch)));
  const LaunchShape shape = TRY(hopper_shape<kGateUp>(p, kKernel, kQuantisedShared<kGateUp>));
  return HopperLaunch<HopperQuantised<T>>{
      kKernel, {matmul, matrix, quantised::group_shift_of(matrix)}, shape, kQuantisedShared<kGateUp>};
}

template <Values kValues>
Result<std::unique_ptr<BoundOp>> bind_values(const ExpertsProblem& p, std::byte* scratch) {
  const Scratch l = hopper_scratch(p);
  constexpr RowsOfX kRows = quantised::is_packed(kValues) ? RowsOfX::kPaired : RowsOfX::kAlternating;
  return make_hopper<T, kRows>(p, TRY((quantised_launch<kValues, true>(p, l, scratch))),
                               TRY((quantised_launch<kValues, false>(p, l, scratch))));
}

// Returns whether the scales fit the kernel's stages. In a stage, a row may have one scale. If values have four bits,
// it may have one scale for every 32 columns, or two in NVFP4.
bool fits_stages(const QuantisedMatrix& m) {
  const QuantisedFormat& f = m.format;
  if (!has_whole_pieces(m) || quantised::group_shift_of(m) < 0) return false;
  return quantised::is_packed(f.values) || m.num_groups == 1 || f.group_cols % kHopperDepth == 0;
}

}  // namespace

bool hopper_quantised_serves(const ExpertsProblem& p) {
  const std::int64_t step = quantised::is_packed(p.gate_up_matrix.format.values) ? 32 : 16;
  return p.dtype == ir::DType::kBFloat16 && p.hidden % step == 0 && p.intermediate % step == 0 &&
         fits_stages(p.gate_up_matrix) && fits_stages(p.down_matrix) &&
         p.tokens * p.top_k >= kRowsOfExpert * p.routed_experts &&
         runs_sm90a_code(reinterpret_cast<const void*>(hopper_quantised<T, Values::kE4M3, true>));
}

Result<std::unique_ptr<BoundOp>> bind_hopper_quantised(const ExpertsProblem& p, std::byte* scratch) {
  switch (p.gate_up_matrix.format.values) {
    case Values::kE4M3: return bind_values<Values::kE4M3>(p, scratch);
    case Values::kInt8: return bind_values<Values::kInt8>(p, scratch);
    case Values::kInt4: return bind_values<Values::kInt4>(p, scratch);
    case Values::kE2M1: return bind_values<Values::kE2M1>(p, scratch);
    case Values::kBlocks: break;
  }
  return internal_error("moe_experts: a type of values without a kernel");
}

}  // namespace tessera
