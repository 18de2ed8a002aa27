// Makes the streamed linear (linear_streamed.cuh) for a problem, with or without a change by adapters.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "tessera/base/ceil_div.h"
#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/cuda/cuda_shared_memory.h"
#include "tessera/ops/linear/linear_cuda.h"
#include "tessera/ops/linear/linear_streamed.cuh"

namespace tessera::cuda::streamed_linear {

template <class T, int kEights, bool kGated, int kHeld, int kRounds, bool kAtOnce, class Change>
Result<std::unique_ptr<BoundOp>> make(const char* name, Streamed<T> p, const Change& change, std::int64_t workers) {
  constexpr auto kKernel = streamed<T, kEights, kGated, kHeld, kRounds, kAtOnce, Change>;
  TRY(allow_shared_memory(reinterpret_cast<const void*>(kKernel), kMostBytes, name));
  const std::int64_t slot_bytes = std::int64_t{kTileRows} * p.row_bytes;
  const std::int64_t tiles = p.n / (kGated ? kTileRows / 2 : kTileRows);
  const std::int64_t blocks = std::min(tiles, 2 * workers);
  const std::int64_t stages = ceil_div(tiles, blocks) * ceil_div(p.k, p.stage_columns);  // stages that one block loads
  p.slots = static_cast<int>(std::min({stages, std::int64_t{kMostSlots}, kMostBytes / slot_bytes}));
  const auto bytes = static_cast<std::size_t>(p.slots * slot_bytes);
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(blocks)), .block = dim3((kWarps + 1) * kWarp)};
  return make_cuda_op(
      name, [=](cudaStream_t stream) { launch_with(kKernel, shape, bytes, /*early=*/true, stream, p, change); });
}

// Makes the kernel for up to eight rows of x. If a tile has one or two stages, the kernel waits for all of them and
// then multiplies them in one go. This shortens the loop over k when the weights arrive before x. With more stages, a
// wait for all of them would free the ring's slots too late (docs/measurements/prefill-decode.md).
template <class T, bool kGated, class Change>
Result<std::unique_ptr<BoundOp>> make_of_eight(const char* name, const Streamed<T>& p, const Change& change,
                                               std::int64_t workers) {
  const std::int64_t stages = ceil_div(p.k, p.stage_columns);
  const bool is_short = p.stage_columns <= kFewRounds * kRoundColumns;
  if (stages == 1) return make<T, 1, kGated, 1, kMostRounds, true>(name, p, change, workers);
  if (stages == 2 && is_short) return make<T, 1, kGated, 2, kFewRounds, true>(name, p, change, workers);
  if (stages == 2) return make<T, 1, kGated, 2, kMostRounds, true>(name, p, change, workers);
  if constexpr (!kGated) {
    if (stages == 3) return make<T, 1, kGated, 3, kMostRounds, false>(name, p, change, workers);
  }
  return make<T, 1, kGated, 1, kMostRounds, false>(name, p, change, workers);
}

// Makes the kernel for up to sixteen rows. There are registers for three stages of x.
template <class T, bool kGated, class Change>
Result<std::unique_ptr<BoundOp>> make_of_sixteen(const char* name, const Streamed<T>& p, const Change& change,
                                                 std::int64_t workers) {
  if constexpr (!kGated) {
    const std::int64_t stages = ceil_div(p.k, p.stage_columns);
    if (stages == 2) return make<T, 2, kGated, 2, kMostRounds, false>(name, p, change, workers);
    if (stages == 3) return make<T, 2, kGated, 3, kMostRounds, false>(name, p, change, workers);
  }
  return make<T, 2, kGated, 1, kMostRounds, false>(name, p, change, workers);
}

// Makes the kernel for p.m rows. All stages of a tile have about the same size. If a tile has few stages, the kernel
// holds all columns of x in registers. It then loads x once, and not again for each tile.
template <class T, bool kGated, class Change>
Result<std::unique_ptr<BoundOp>> make_of_rows(const char* name, Streamed<T> p, const Change& change,
                                              std::int64_t workers) {
  const std::int64_t stages = ceil_div(p.k, kMostColumns);
  p.stage_columns = static_cast<int>(ceil_div(ceil_div(p.k, stages), kStepColumns) * kStepColumns);
  p.row_bytes = static_cast<int>(ceil_div(p.stage_columns * 2, kBanks) * kBanks + kPadding);
  return p.m <= 8 ? make_of_eight<T, kGated>(name, p, change, workers)
                  : make_of_sixteen<T, kGated>(name, p, change, workers);
}

// Makes the kernel for `p`. If there is a gate, `y` is the gate's result.
template <class T, class Change>
Result<std::unique_ptr<BoundOp>> make_streamed(const char* name, const LinearProblem& p, const Change& change,
                                               Gate gate, std::byte* y) {
  const bool gated = gate != Gate::kNone;
  const Streamed<T> s{.x = reinterpret_cast<const T*>(p.x),
                      .w = reinterpret_cast<const T*>(p.w),
                      .bias = reinterpret_cast<const T*>(p.bias),
                      .residual = reinterpret_cast<const T*>(p.residual),
                      .y = reinterpret_cast<T*>(y),
                      .m = static_cast<int>(p.m),
                      .n = static_cast<int>(gated ? p.n / 2 : p.n),
                      .k = static_cast<int>(p.k),
                      .stage_columns = 0,
                      .row_bytes = 0,
                      .slots = 0,
                      .gate = gate};
  return gated ? make_of_rows<T, true>(name, s, change, p.workers) : make_of_rows<T, false>(name, s, change, p.workers);
}

}  // namespace tessera::cuda::streamed_linear
