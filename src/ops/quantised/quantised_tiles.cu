// Binds the tile kernels of quantised_linear (quantised_tiles.cuh, quantised_groups.cuh), both for the operator alone
// and for the operator joined with the gate after it (silu_mul or gelu_mul).
#include "tessera/ops/quantised/quantised_tiles.cuh"

#include "tessera/ops/cuda/sm90a_code.h"
#include "tessera/ops/linear/linear_cuda.h"
#include "tessera/ops/quantised/tiles_bind.cuh"

namespace tessera {
namespace {

using namespace cuda;
using namespace cuda::quantised;

constexpr int kNotServed = -1;
// Returns how many scales a row of w has in a stage. The result is 0 if values have eight bits and one scale belongs to
// the whole row, and kNotServed if the kernel does not support the format.
int groups_of_stage(const QuantisedMatrix& w) {
  const QuantisedFormat& f = w.format;
  if (group_shift_of(w) < 0) return kNotServed;
  if (f.values == Values::kE2M1) {
    const bool nvfp4 = f.scales == Scales::kE4M3 && f.group_cols == kNvfp4Group && f.group_rows == 1;
    return nvfp4 && w.cols % kMostStageColumns == 0 ? kMostStageColumns / static_cast<int>(kNvfp4Group) : kNotServed;
  }
  if (f.scales != Scales::kFloat32) return kNotServed;
  const bool of_rows = w.num_groups == 1;
  switch (f.values) {
    case Values::kInt8: return of_rows ? 0 : kNotServed;
    case Values::kE4M3: return of_rows ? 0 : f.group_cols % kMostStageColumns == 0 ? 1 : kNotServed;
    default: return of_rows || f.group_cols % kMostStageColumns == 0 ? 1 : f.group_cols % 32 == 0 ? 4 : kNotServed;
  }
}

template <class T, Values kValues, int kGroups>
Result<std::unique_ptr<BoundOp>> make(const QuantisedCall& p) {
  return make_tiles<T, kValues, StageGroups{.count = kGroups}>(p);
}

template <class T>
Result<std::unique_ptr<BoundOp>> make(const QuantisedCall& p) {
  const int groups = groups_of_stage(p.w);
  switch (p.w.format.values) {
    case Values::kE4M3: return groups == 0 ? make<T, Values::kE4M3, 0>(p) : make<T, Values::kE4M3, 1>(p);
    case Values::kInt8: return make<T, Values::kInt8, 0>(p);
    case Values::kE2M1: return make<T, Values::kE2M1, 8>(p);
    default: break;  // int4
  }
  return groups == 1 ? make<T, Values::kInt4, 1>(p) : make<T, Values::kInt4, 4>(p);
}

}  // namespace

bool quantised_tiles_serve(const QuantisedCall& p) {
  return (p.dtype == ir::DType::kBFloat16 || p.dtype == ir::DType::kFloat16) && p.m >= 1 && p.y_columns() % 8 == 0 &&
         p.k % 32 == 0 && is_aligned(p.x) && is_aligned(p.w.values) && is_aligned(p.bias) && is_aligned(p.residual) &&
         is_aligned(p.y) && (has_block_tiles(p.w) || groups_of_stage(p.w) != kNotServed) &&
         runs_sm90a_code(reinterpret_cast<const void*>(
             quantised_block<ConvertedProduct<__nv_bfloat16, Values::kE4M3, StageGroups{.count = 1}, 32>>));
}

Result<std::unique_ptr<BoundOp>> bind_quantised_tiles(const QuantisedCall& p) {
  if (has_block_tiles(p.w)) return bind_block_tiles(p);
  if (prefers_group_tiles(p)) return bind_group_tiles(p);
  return p.dtype == ir::DType::kBFloat16 ? make<__nv_bfloat16>(p) : make<__half>(p);
}

}  // namespace tessera
