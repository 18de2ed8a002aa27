// Binds the kernel of tiles (quantised_tiles.cuh) for matrices of GGUF's blocks that were split into codes and float16
// scales (blocks/block_codes.h).
#include "tessera/ops/quantised/tiles_bind.cuh"

namespace tessera::cuda::quantised {
namespace {

template <class T, int kCount>
Result<std::unique_ptr<BoundOp>> bind(const QuantisedCall& p) {
  constexpr StageGroups kHalves{.count = kCount, .form = ScaleForm::kHalves};
  constexpr StageGroups kPairs{.count = kCount, .form = ScaleForm::kPairs};
  const bool pairs = p.w.format.scales == Scales::kPairs;
  if (p.w.format.values == Values::kInt8)
    return pairs ? make_tiles<T, Values::kInt8, kPairs>(p) : make_tiles<T, Values::kInt8, kHalves>(p);
  return pairs ? make_tiles<T, Values::kInt4, kPairs>(p) : make_tiles<T, Values::kInt4, kHalves>(p);
}

template <class T>
Result<std::unique_ptr<BoundOp>> bind(const QuantisedCall& p) {
  return p.w.format.group_cols == 16 ? bind<T, 8>(p) : bind<T, 4>(p);
}

}  // namespace

bool has_block_tiles(const QuantisedMatrix& w) {
  return is_of_block_codes(w.format) && w.cols % kMostStageColumns == 0;
}

Result<std::unique_ptr<BoundOp>> bind_block_tiles(const QuantisedCall& p) {
  return p.dtype == ir::DType::kBFloat16 ? bind<__nv_bfloat16>(p) : bind<__half>(p);
}

}  // namespace tessera::cuda::quantised
