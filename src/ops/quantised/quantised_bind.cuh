// Binds a kernel of quantised_block.cuh.
#pragma once

#include <algorithm>
#include <array>

#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/cuda/cuda_shared_memory.h"
#include "tessera/ops/cuda/tensor_map.h"
#include "tessera/ops/quantised/quantised_block.cuh"
#include "tessera/ops/quantised/quantised_kernels.cuh"

namespace tessera::cuda::quantised {

struct Arrangement {
  int split = 1;
  bool shared = false;
};

// Returns how blocks share the work. Blocks split k as long as all of them run at once and each has at least two
// stages. In a deterministic forward nothing that depends on m may change the order of sums.
inline Arrangement arrange(const QuantisedCall& p, std::int64_t tiles, std::int64_t most_blocks) {
  if (tiles >= most_blocks) return {.shared = true};
  if (p.deterministic) return {};
  int split = 1;
  const std::int64_t stages = ceil_div(p.k, std::int64_t{kStageColumns});
  while (split < kMostSplit && 2 * split * tiles <= most_blocks && stages >= 4 * split) split *= 2;
  return {.split = split};
}

// Makes the tensor map of w's values, with boxes of a tile's rows and a stage's columns.
inline Result<CUtensorMap> map_of_values(const QuantisedCall& p) {
  const std::int64_t elements = p.w.row_bytes() / 2;  // the map's elements have 16 bits
  const auto per_byte = static_cast<int>(p.w.format.values_of_byte());
  const int box = kStageColumns / per_byte / 2;
  const Swizzle swizzle = per_byte == 1 ? Swizzle::k128Bytes : Swizzle::k64Bytes;
  if (p.gate == Gate::kNone)
    return encode_tensor_map(ir::DType::kBFloat16, p.w.values,
                             std::array{TensorBox{.size = elements, .stride = 1, .box = box},
                                        TensorBox{.size = p.n, .stride = elements, .box = kTileWeights}},
                             swizzle);
  return encode_row_groups(ir::DType::kBFloat16, p.w.values,
                           {.matrices = 1, .rows = p.n, .columns = elements, .first = 8, .second = p.n / 2},
                           kTileWeights, box, swizzle);
}

// The rows of x in the form that the kernel reads.
struct TileRows {
  const void* data;
  std::int64_t elements;          // 16-bit elements in a row
  const float* scales = nullptr;  // only for rounded rows
  std::int64_t scale_stride = 0;
};

template <class Product>
Result<std::unique_ptr<BoundOp>> make_block(const char* name, const QuantisedCall& p, const TileRows& rows) {
  using T = typename Product::Element;
  using Ring = typename Product::Ring;
  constexpr auto kKernel = quantised_block<Product>;
  constexpr int kN = Ring::kN;
  constexpr int kMostBytes = kTileBlocks<kN> == 1 ? 224 << 10 : 108 << 10;
  constexpr int kSlotBytes = Ring::kStageBytes + (Product::kScaled ? kN * 4 : 0);
  constexpr int kStages = std::min(kMostTileStages, (kMostBytes - 1024) / kSlotBytes);
  constexpr std::size_t kBytes = 1024 + static_cast<std::size_t>(kStages) * kSlotBytes;
  static_assert(kN * kTileSumRow * 4 <= kStages * Ring::kStageBytes);
  const std::int64_t row_tiles = ceil_div(p.m, std::int64_t{kN});
  const std::int64_t weight_tiles = ceil_div(p.n, std::int64_t{kTileWeights});
  const Arrangement a = arrange(p, row_tiles * weight_tiles, kTileBlocks<kN> * p.workers);
  const CUtensorMap x = TRY(
      encode_tensor_map(ir::DType::kBFloat16, rows.data,
                        std::array{TensorBox{.size = rows.elements, .stride = 1, .box = kBoxRowBytes / 2},
                                   TensorBox{.size = p.m, .stride = rows.elements, .box = a.shared ? kN / 2 : kN}}));
  const CUtensorMap values = TRY(map_of_values(p));
  const TiledQuantised<T> bound{.x = x,
                                .values = values,
                                .w = p.w,
                                .x_scales = rows.scales,
                                .scale_stride = static_cast<int>(rows.scale_stride),
                                .bias = reinterpret_cast<const T*>(p.bias),
                                .residual = reinterpret_cast<const T*>(p.residual),
                                .y = reinterpret_cast<T*>(p.y),
                                .m = static_cast<int>(p.m),
                                .n = static_cast<int>(p.y_columns()),
                                .k = static_cast<int>(p.k),
                                .row_tiles = static_cast<int>(row_tiles),
                                .split = a.split,
                                .shared = a.shared,
                                .stages = kStages,
                                .group_shift = group_shift_of(p.w),
                                .gate = p.gate};
  TRY(allow_shared_memory(reinterpret_cast<const void*>(kKernel), kBytes, name));
  const std::int64_t clusters = row_tiles * (a.shared ? ceil_div(weight_tiles, std::int64_t{2}) : weight_tiles);
  const unsigned cluster = a.shared ? 2 : static_cast<unsigned>(a.split);
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(clusters) * cluster), .block = dim3(kTileThreads), .cluster = cluster};
  return make_cuda_op(name,
                      [=](cudaStream_t stream) { launch_with(kKernel, shape, kBytes, /*early=*/true, stream, bound); });
}

}  // namespace tessera::cuda::quantised
