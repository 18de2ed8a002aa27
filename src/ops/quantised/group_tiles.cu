// Binds the kernel of tiles that applies the scales of int4 to sums (quantised_groups.cuh).
#include "tessera/ops/quantised/quantised_groups.cuh"

#include "tessera/ops/quantised/tiles_bind.cuh"

namespace tessera::cuda::quantised {
namespace {

template <class T>
Result<std::unique_ptr<BoundOp>> bind(const QuantisedCall& p) {
  const TileRows rows{.data = p.x, .elements = p.k};
  if (p.m <= 64) return make_block<GroupProduct<T, 64>>(tiles_name(p), p, rows);
  if (p.m <= 96) return make_block<GroupProduct<T, 96>>(tiles_name(p), p, rows);
  return make_block<GroupProduct<T, 128>>(tiles_name(p), p, rows);
}

}  // namespace

bool prefers_group_tiles(const QuantisedCall& p) {
  constexpr int kGroup = GroupProduct<__nv_bfloat16, 64>::kColumns;
  return is_int4_in_groups(p.w.format) && p.k % kGroup == 0 && !p.deterministic && p.m > 32 && p.m <= 128;
}

Result<std::unique_ptr<BoundOp>> bind_group_tiles(const QuantisedCall& p) {
  return p.dtype == ir::DType::kBFloat16 ? bind<__nv_bfloat16>(p) : bind<__half>(p);
}

}  // namespace tessera::cuda::quantised
