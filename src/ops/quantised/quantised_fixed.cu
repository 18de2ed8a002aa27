// Binds quantised_linear of rows in fixed point (quantised_fixed.cuh), alone and joined with the operators before and
// after it. A kernel before the product converts x.
#include "tessera/ops/quantised/quantised_fixed.cuh"

#include <utility>
#include <vector>

#include "tessera/device/alignment.h"
#include "tessera/ops/contract/bound_sequence.h"
#include "tessera/ops/cuda/sm90a_code.h"
#include "tessera/ops/quantised/convert_rows.cuh"
#include "tessera/ops/quantised/quantised_bind.cuh"
#include "tessera/ops/quantised/quantised_kernels.cuh"

namespace tessera {
namespace {

using namespace cuda;
using namespace cuda::quantised;

// Returns the number of rows of x in a tile.
int tile_rows(const QuantisedCall& p) { return p.m <= 8 ? 8 : p.m <= 16 ? 16 : 32; }

// The layout of converted rows in the workspace.
struct FixedLayout {
  std::size_t groups;  // offset of the FixedGroups
  std::size_t size;
};

FixedLayout lay_out_fixed(const QuantisedCall& p) {
  FixedLayout l{.groups = align_up(static_cast<std::size_t>(2 * p.m * p.k)), .size = 0};
  l.size = l.groups + align_up(static_cast<std::size_t>(p.w.num_groups * tile_rows(p)) * sizeof(FixedGroup));
  return l;
}

template <class T, bool kZeros>
Result<std::unique_ptr<BoundOp>> make_product(const QuantisedCall& p, const FixedRows& fixed) {
  const char* const name =
      p.gate == Gate::kNone ? "quantised_linear, fixed point" : "quantised_linear and gate, fixed point";
  const int groups_of_stage = kStageFixedGroups * tile_rows(p);
  const TileRows rows{.data = fixed.values,
                      .elements = p.k / 2,
                      .scales = reinterpret_cast<const float*>(fixed.groups),
                      .scale_stride = groups_of_stage * static_cast<int>(sizeof(FixedGroup) / sizeof(float))};
  switch (tile_rows(p)) {
    case 8: return make_block<FixedProduct<T, kZeros, 8>>(name, p, rows);
    case 16: return make_block<FixedProduct<T, kZeros, 16>>(name, p, rows);
    default: return make_block<FixedProduct<T, kZeros, 32>>(name, p, rows);
  }
}

template <class T>
Result<std::unique_ptr<BoundOp>> make(const QuantisedCall& p, const MakeRows& make_rows) {
  const FixedRows rows{.values = reinterpret_cast<std::uint8_t*>(p.workspace),
                       .groups = reinterpret_cast<FixedGroup*>(p.workspace + lay_out_fixed(p).groups),
                       .stride = tile_rows(p)};
  std::vector<std::unique_ptr<BoundOp>> parts;
  parts.push_back(make_rows ? make_rows(rows) : make_converting<T>(p, rows));
  if (parts[0] == nullptr) return std::unique_ptr<BoundOp>();
  parts.push_back(TRY(p.w.zeros != nullptr ? make_product<T, true>(p, rows) : make_product<T, false>(p, rows)));
  return Result<std::unique_ptr<BoundOp>>(std::make_unique<BoundSequence>(std::move(parts)));
}

}  // namespace

bool quantised_fixed_serves(const QuantisedCall& p) {
  constexpr std::int64_t kLoadedGroups = 4;  // FixedScales loads this many scales at once
  return (p.dtype == ir::DType::kBFloat16 || p.dtype == ir::DType::kFloat16) && is_int4_in_groups(p.w.format) &&
         p.k % (kLoadedGroups * kFixedGroup) == 0 && p.m >= 1 && p.m <= kMostFixedPointRows && !p.deterministic &&
         p.y_columns() % 8 == 0 && is_aligned(p.x) && is_aligned(p.w.values) && is_aligned(p.w.scales) &&
         is_aligned(p.w.zeros) && is_aligned(p.bias) && is_aligned(p.residual) && is_aligned(p.y) &&
         runs_sm90a_code(reinterpret_cast<const void*>(quantised_block<FixedProduct<__nv_bfloat16, false, 8>>));
}

std::size_t quantised_fixed_workspace(const QuantisedCall& p) { return lay_out_fixed(p).size; }

Result<std::unique_ptr<BoundOp>> bind_quantised_fixed(const QuantisedCall& p, const MakeRows& make_rows) {
  return p.dtype == ir::DType::kBFloat16 ? make<__nv_bfloat16>(p, make_rows) : make<__half>(p, make_rows);
}

}  // namespace tessera
