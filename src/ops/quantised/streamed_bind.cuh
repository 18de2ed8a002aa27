// Functions with which quantised_streamed.cu and quantised_staged.cu bind their kernels for few rows of x.
#pragma once

#include <optional>

#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/linear/linear_cuda.h"
#include "tessera/ops/quantised/quantised_kernels.cuh"
#include "tessera/ops/quantised/streamed_tile.cuh"

namespace tessera::cuda::quantised {

// Returns where the kernels apply the scales of this matrix. The result is empty if they do not support the format.
inline std::optional<ScaleOf> scale_place(const QuantisedMatrix& w) {
  const QuantisedFormat& f = w.format;
  if (group_shift_of(w) < 0) return std::nullopt;
  if (f.values == Values::kE2M1) {
    const bool nvfp4 = f.scales == Scales::kE4M3 && f.group_cols == kNvfp4Group && f.group_rows == 1;
    return nvfp4 ? std::optional(ScaleOf::kValues) : std::nullopt;
  }
  if (is_of_block_codes(f)) return f.scales == Scales::kFloat16 ? ScaleOf::kHalves : ScaleOf::kPairs;
  if (f.scales != Scales::kFloat32) return std::nullopt;
  if (w.num_groups == 1) return f.values == Values::kInt4 ? std::nullopt : std::optional(ScaleOf::kRows);
  if (f.values == Values::kInt8) return std::nullopt;
  if (f.group_cols % quad_columns(f.values) == 0) return ScaleOf::kSums;
  return f.values == Values::kInt4 && f.group_cols % 32 == 0 ? std::optional(ScaleOf::kValues) : std::nullopt;
}

// Returns the layout of a tile's scales in shared memory. The result is empty if the copy engine (TMA) cannot copy
// them, if they take too much memory, or if a tile could contain rows of two blocks of w that have different scales.
inline std::optional<TileScales> tile_scales(const QuantisedMatrix& w, Gate gate) {
  if (*scale_place(w) == ScaleOf::kRows) return TileScales{};
  const int parts = gate == Gate::kNone ? 1 : 2;
  const auto row = static_cast<int>(w.num_groups * w.format.scale_bytes());
  const bool of_rows = w.format.group_rows == 1;
  const int rows = kTileRows / parts;  // number of rows of w in a part
  if (!of_rows && w.format.group_rows % rows != 0) return std::nullopt;
  TileScales s{.scale_bytes = of_rows ? kTileRows * row : parts * row,
               .zero_bytes = w.zeros == nullptr ? 0 : kTileRows * static_cast<int>(w.num_groups),
               .scale_row = of_rows ? row : 0,
               .zero_row = w.zeros == nullptr ? 0 : static_cast<int>(w.num_groups),
               .slot = 0};
  s.slot = ceil_div(s.scale_bytes + s.zero_bytes, 128) * 128;
  constexpr int kMostSlot = 29 << 10;
  const bool whole = s.scale_bytes / parts % 16 == 0 && s.zero_bytes / parts % 16 == 0;
  return whole && is_aligned(w.scales) && is_aligned(w.zeros) && s.slot <= kMostSlot ? std::optional(s) : std::nullopt;
}

// Returns the kernel's arguments without the number of slots. Precondition: tile_scales() has a value.
template <class T>
StreamedQuantised<T> streamed_arguments(const QuantisedCall& p) {
  return {.w = p.w,
          .x = reinterpret_cast<const T*>(p.x),
          .bias = reinterpret_cast<const T*>(p.bias),
          .residual = reinterpret_cast<const T*>(p.residual),
          .y = reinterpret_cast<T*>(p.y),
          .m = static_cast<int>(p.m),
          .n = static_cast<int>(p.y_columns()),
          .row_bytes = static_cast<int>(p.w.row_bytes()),
          .slots = 0,
          .group_shift = group_shift_of(p.w),
          .scale_size = static_cast<int>(p.w.format.scale_bytes()),
          .scales = *tile_scales(p.w, p.gate),
          .gate = p.gate};
}

// Calls Kernel::bind<T, values, place of scales>(p), with the types of the call.
template <class Kernel, class T>
Result<std::unique_ptr<BoundOp>> bind_streamed(const QuantisedCall& p) {
  const ScaleOf place = *scale_place(p.w);
  switch (p.w.format.values) {
    case Values::kE4M3:
      return place == ScaleOf::kRows ? Kernel::template bind<T, Values::kE4M3, ScaleOf::kRows>(p)
                                     : Kernel::template bind<T, Values::kE4M3, ScaleOf::kSums>(p);
    case Values::kInt8:
      if (place == ScaleOf::kHalves) return Kernel::template bind<T, Values::kInt8, ScaleOf::kHalves>(p);
      if (place == ScaleOf::kPairs) return Kernel::template bind<T, Values::kInt8, ScaleOf::kPairs>(p);
      return Kernel::template bind<T, Values::kInt8, ScaleOf::kRows>(p);
    case Values::kE2M1: return Kernel::template bind<T, Values::kE2M1, ScaleOf::kValues>(p);
    default: break;  // int4
  }
  if (place == ScaleOf::kHalves) return Kernel::template bind<T, Values::kInt4, ScaleOf::kHalves>(p);
  if (place == ScaleOf::kPairs) return Kernel::template bind<T, Values::kInt4, ScaleOf::kPairs>(p);
  return place == ScaleOf::kSums ? Kernel::template bind<T, Values::kInt4, ScaleOf::kSums>(p)
                                 : Kernel::template bind<T, Values::kInt4, ScaleOf::kValues>(p);
}
template <class Kernel>
Result<std::unique_ptr<BoundOp>> bind_streamed(const QuantisedCall& p) {
  return p.dtype == ir::DType::kBFloat16 ? bind_streamed<Kernel, __nv_bfloat16>(p) : bind_streamed<Kernel, __half>(p);
}

}  // namespace tessera::cuda::quantised
