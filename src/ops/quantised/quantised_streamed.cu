// Binds the streamed kernel of quantised_linear (quantised_streamed.cuh), alone and joined with the gate.
#include "tessera/ops/quantised/quantised_streamed.cuh"

#include <algorithm>
#include <optional>
#include <utility>

#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/cuda/cuda_shared_memory.h"
#include "tessera/ops/linear/linear_cuda.h"
#include "tessera/ops/quantised/quantised_kernels.cuh"

namespace tessera {
namespace {

using namespace cuda;
using namespace cuda::quantised;

// Returns where the kernel applies the scales of this matrix. The result is empty if it does not support the format.
std::optional<ScaleOf> scale_place(const QuantisedMatrix& w) {
  const QuantisedFormat& f = w.format;
  if (group_shift_of(w) < 0) return std::nullopt;
  if (f.values == Values::kE2M1) {
    const bool nvfp4 = f.scales == Scales::kE4M3 && f.group_cols == kNvfp4Group && f.group_rows == 1;
    return nvfp4 ? std::optional(ScaleOf::kValues) : std::nullopt;
  }
  if (f.scales != Scales::kFloat32) return std::nullopt;
  if (w.num_groups == 1) return f.values == Values::kInt4 ? std::nullopt : std::optional(ScaleOf::kRows);
  if (f.values == Values::kInt8) return std::nullopt;
  if (f.group_cols % quad_columns(f.values) == 0) return ScaleOf::kSums;
  return f.values == Values::kInt4 && f.group_cols % 32 == 0 ? std::optional(ScaleOf::kValues) : std::nullopt;
}

// Returns the layout of a tile's scales in shared memory. The result is empty if the copy engine (TMA) cannot copy
// them.
std::optional<TileScales> tile_scales(const QuantisedMatrix& w, Gate gate) {
  if (*scale_place(w) == ScaleOf::kRows) return TileScales{};
  const int parts = gate == Gate::kNone ? 1 : 2;
  const auto row = static_cast<int>(w.num_groups) * (w.format.scales == Scales::kE4M3 ? 1 : 4);
  const bool of_rows = w.format.group_rows == 1;
  const int rows = kTileRows / parts;  // rows of w in a part
  if (!of_rows && w.format.group_rows % rows != 0) return std::nullopt;
  TileScales s{.scale_bytes = of_rows ? kTileRows * row : parts * row,
               .zero_bytes = w.zeros == nullptr ? 0 : kTileRows * static_cast<int>(w.num_groups),
               .scale_row = of_rows ? row : 0,
               .zero_row = w.zeros == nullptr ? 0 : static_cast<int>(w.num_groups),
               .slot = 0};
  s.slot = ceil_div(s.scale_bytes + s.zero_bytes, 128) * 128;
  constexpr int kMostSlot = 20 << 10;
  const bool whole = s.scale_bytes / parts % 16 == 0 && s.zero_bytes / parts % 16 == 0;
  return whole && is_aligned(w.scales) && is_aligned(w.zeros) && s.slot <= kMostSlot ? std::optional(s) : std::nullopt;
}

template <class T, Values kValues, ScaleOf kScaleOf, int kEights, int kHeld>
Result<std::unique_ptr<BoundOp>> make(const char* name, StreamedQuantised<T> p, std::int64_t workers) {
  constexpr auto kKernel = quantised_streamed<T, kValues, kScaleOf, kEights, kHeld>;
  TRY(allow_shared_memory(reinterpret_cast<const void*>(kKernel), kMostRingBytes<kEights>, name));
  constexpr int kMostStage = most_rounds(kValues) * kRoundBytes;
  const int stages = ceil_div(p.row_bytes, kMostStage);
  p.stage_bytes = ceil_div(ceil_div(p.row_bytes, stages), kQuadBytes) * kQuadBytes;
  p.slot_row = ceil_div(p.stage_bytes, 128) * 128 + kRowPadding;
  const int slot_bytes = kTileRows * p.slot_row;
  const int most_ring = kMostRingBytes<kEights> - 2 * p.scales.slot;
  const std::int64_t tiles = p.n / (p.gate == Gate::kNone ? kTileRows : kTileRows / 2);
  const std::int64_t blocks = std::min(tiles, 2 * workers);
  const std::int64_t most = ceil_div(tiles, blocks) * stages;  // stages of a block, at most
  p.slots = static_cast<int>(std::min({most, std::int64_t{kMostRingSlots}, std::int64_t{most_ring / slot_bytes}}));
  const auto bytes = static_cast<std::size_t>(p.slots * slot_bytes + 2 * p.scales.slot);
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(blocks)), .block = dim3((kStreamWarps + 1) * kWarp)};
  return make_cuda_op(name,
                      [=](cudaStream_t stream) { launch_with(kKernel, shape, bytes, /*early=*/true, stream, p); });
}

template <class T, Values kValues, ScaleOf kScaleOf>
Result<std::unique_ptr<BoundOp>> make(const char* name, const StreamedQuantised<T>& p, std::int64_t workers) {
  return p.m <= 8 ? make<T, kValues, kScaleOf, 1, 2>(name, p, workers)
                  : make<T, kValues, kScaleOf, 2, 1>(name, p, workers);
}

template <class T>
Result<std::unique_ptr<BoundOp>> make(const char* name, const StreamedQuantised<T>& p, std::int64_t workers) {
  const ScaleOf place = *scale_place(p.w);
  switch (p.w.format.values) {
    case Values::kE4M3:
      return place == ScaleOf::kRows ? make<T, Values::kE4M3, ScaleOf::kRows>(name, p, workers)
                                     : make<T, Values::kE4M3, ScaleOf::kSums>(name, p, workers);
    case Values::kInt8: return make<T, Values::kInt8, ScaleOf::kRows>(name, p, workers);
    case Values::kE2M1: return make<T, Values::kE2M1, ScaleOf::kValues>(name, p, workers);
    case Values::kInt4: break;
  }
  return place == ScaleOf::kSums ? make<T, Values::kInt4, ScaleOf::kSums>(name, p, workers)
                                 : make<T, Values::kInt4, ScaleOf::kValues>(name, p, workers);
}

}  // namespace

bool quantised_streamed_serves(const QuantisedCall& p) {
  return !p.deterministic && (p.dtype == ir::DType::kBFloat16 || p.dtype == ir::DType::kFloat16) && p.m >= 1 &&
         p.m <= kMostStreamedRows && p.n % kTileRows == 0 && p.w.row_bytes() % kQuadBytes == 0 && is_aligned(p.x) &&
         is_aligned(p.w.values) && can_launch_early() && scale_place(p.w).has_value() &&
         tile_scales(p.w, p.gate).has_value();
}

Result<std::unique_ptr<BoundOp>> bind_quantised_streamed(const QuantisedCall& p) {
  const char* const name = p.gate == Gate::kNone ? "quantised_linear, streamed" : "quantised_linear and gate, streamed";
  const auto of = [&]<class T>() {
    return make<T>(name,
                   {.w = p.w,
                    .x = reinterpret_cast<const T*>(p.x),
                    .bias = reinterpret_cast<const T*>(p.bias),
                    .residual = reinterpret_cast<const T*>(p.residual),
                    .y = reinterpret_cast<T*>(p.y),
                    .m = static_cast<int>(p.m),
                    .n = static_cast<int>(p.y_columns()),
                    .row_bytes = static_cast<int>(p.w.row_bytes()),
                    .stage_bytes = 0,
                    .slot_row = 0,
                    .slots = 0,
                    .group_shift = group_shift_of(p.w),
                    .scales = *tile_scales(p.w, p.gate),
                    .gate = p.gate},
                   p.workers);
  };
  return p.dtype == ir::DType::kBFloat16 ? of.template operator()<__nv_bfloat16>() : of.template operator()<__half>();
}

}  // namespace tessera
