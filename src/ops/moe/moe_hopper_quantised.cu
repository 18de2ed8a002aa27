// Binds moe_experts with quantised experts on Hopper (moe_hopper_quantised.cuh).
#include "tessera/ops/moe/moe_hopper.h"

#include "tessera/ops/cuda/sm90a_code.h"
#include "tessera/ops/moe/moe_hopper_launch.cuh"
#include "tessera/ops/moe/moe_hopper_quantised.cuh"

namespace tessera {
namespace {

using namespace cuda;
using namespace cuda::moe;
using T = __nv_bfloat16;

// This kernel is used if experts have at least this many rows on average. If the average is lower, many experts have no
// rows.
constexpr std::int64_t kRowsOfExpert = 1;

template <Values kValues, bool kCodes, bool kGateUp, ColumnOrder kResults>
Result<HopperLaunch<HopperQuantised<T>>> quantised_launch(const ExpertsProblem& p, const Scratch& l,
                                                          std::byte* scratch) {
  constexpr auto kKernel = hopper_quantised<T, kValues, kCodes, kGateUp, kResults>;
  const QuantisedMatrix& matrix = kGateUp ? p.gate_up_matrix : p.down_matrix;
  const HopperMatmul<T> matmul = TRY((hopper_matmul<T, kGateUp>(p, l, scratch)));
  const LaunchShape shape = TRY(hopper_shape<kGateUp>(p, kKernel, kQuantisedShared<kGateUp>));
  return HopperLaunch<HopperQuantised<T>>{
      kKernel, {matmul, matrix, quantised::group_shift_of(matrix)}, shape, kQuantisedShared<kGateUp>};
}

template <Values kGateUp, Values kDown, bool kCodes>
Result<std::unique_ptr<BoundOp>> bind_values(const ExpertsProblem& p, std::byte* scratch) {
  const Scratch l = hopper_scratch(p);
  constexpr RowsOfX kRows = quantised::is_packed(kGateUp) ? RowsOfX::kPaired : RowsOfX::kAlternating;
  return make_hopper<T, kRows>(p, TRY((quantised_launch<kGateUp, kCodes, true, order_of(kDown)>(p, l, scratch))),
                               TRY((quantised_launch<kDown, kCodes, false, ColumnOrder::kGiven>(p, l, scratch))));
}

Result<std::unique_ptr<BoundOp>> bind_codes(const ExpertsProblem& p, std::byte* scratch) {
  const bool down_is_int8 = p.down_matrix.format.values == Values::kInt8;
  if (p.gate_up_matrix.format.values == Values::kInt8)
    return down_is_int8 ? bind_values<Values::kInt8, Values::kInt8, true>(p, scratch)
                        : bind_values<Values::kInt8, Values::kInt4, true>(p, scratch);
  return down_is_int8 ? bind_values<Values::kInt4, Values::kInt8, true>(p, scratch)
                      : bind_values<Values::kInt4, Values::kInt4, true>(p, scratch);
}

// Returns whether the scales fit the kernel's stages. In a stage, a row of weights may have one scale. A row of
// four-bit values may also have one scale for every 32 columns, or for every 16 columns in NVFP4. If has_codes() is
// true, a row may have one scale for every 16 columns.
bool fits_stages(const QuantisedMatrix& m) {
  const QuantisedFormat& f = m.format;
  if (!has_whole_pieces(m) || quantised::group_shift_of(m) < 0) return false;
  return quantised::is_packed(f.values) || has_codes(m) || m.num_groups == 1 || f.group_cols % kHopperDepth == 0;
}

// Returns whether there are kernels for this pair of formats. gate_up and down must have the same type of values,
// except that codes (has_codes()) may be int4 in one matrix and int8 in the other.
bool are_together(const QuantisedMatrix& gate_up, const QuantisedMatrix& down) {
  return has_codes(gate_up) == has_codes(down) && (has_codes(down) || gate_up.format.values == down.format.values);
}

}  // namespace

bool hopper_quantised_serves(const ExpertsProblem& p) {
  const QuantisedMatrix& gate_up = p.gate_up_matrix;
  const QuantisedMatrix& down = p.down_matrix;
  const bool packed = quantised::is_packed(gate_up.format.values) || quantised::is_packed(down.format.values);
  const std::int64_t step = packed ? 32 : 16;
  constexpr auto kAnyKernel = hopper_quantised<T, Values::kE4M3, false, false, ColumnOrder::kGiven>;
  return p.dtype == ir::DType::kBFloat16 && p.hidden % step == 0 && p.intermediate % step == 0 &&
         fits_stages(gate_up) && fits_stages(down) && are_together(gate_up, down) &&
         p.tokens * p.top_k >= kRowsOfExpert * p.routed_experts &&
         runs_sm90a_code(reinterpret_cast<const void*>(kAnyKernel));
}

Result<std::unique_ptr<BoundOp>> bind_hopper_quantised(const ExpertsProblem& p, std::byte* scratch) {
  if (has_codes(p.gate_up_matrix)) return bind_codes(p, scratch);
  switch (p.gate_up_matrix.format.values) {
    case Values::kE4M3: return bind_values<Values::kE4M3, Values::kE4M3, false>(p, scratch);
    case Values::kInt8: return bind_values<Values::kInt8, Values::kInt8, false>(p, scratch);
    case Values::kInt4: return bind_values<Values::kInt4, Values::kInt4, false>(p, scratch);
    case Values::kE2M1: return bind_values<Values::kE2M1, Values::kE2M1, false>(p, scratch);
    case Values::kBlocks: break;
  }
  return internal_error("moe_experts: a type of values without a kernel");
}

}  // namespace tessera
