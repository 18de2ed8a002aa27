// Binds the streamed kernel of quantised_linear (quantised_streamed.cuh), alone or joined with the silu_mul or gelu_mul
// after it.
#include "tessera/ops/quantised/quantised_streamed.cuh"

#include <algorithm>

#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/cuda/cuda_shared_memory.h"
#include "tessera/ops/quantised/quantised_kernels.cuh"
#include "tessera/ops/quantised/streamed_bind.cuh"

namespace tessera {
namespace {

using namespace cuda;
using namespace cuda::quantised;

constexpr int kFewestSlots = 3;  // with fewer slots, loads wait for products

struct StreamedKernel {
  template <class T, Values kValues, ScaleOf kScaleOf>
  static Result<std::unique_ptr<BoundOp>> bind(const QuantisedCall& p) {
    return p.m <= 8 ? make<T, kValues, kScaleOf, 1, 2>(p) : make<T, kValues, kScaleOf, 2, 1>(p);
  }

  template <class T, Values kValues, ScaleOf kScaleOf, int kEights, int kHeld>
  static Result<std::unique_ptr<BoundOp>> make(const QuantisedCall& call) {
    constexpr auto kKernel = quantised_streamed<T, kValues, kScaleOf, kEights, kHeld>;
    const char* const name =
        call.gate == Gate::kNone ? "quantised_linear, streamed" : "quantised_linear and gate, streamed";
    TRY(allow_shared_memory(reinterpret_cast<const void*>(kKernel), kMostRingBytes<kEights>, name));
    StreamedQuantised<T> p = streamed_arguments<T>(call);
    const int most_ring = kMostRingBytes<kEights> - 2 * p.scales.slot;
    const auto distance_of = [](int bytes) { return static_cast<int>(ceil_div(bytes, 128)) * 128 + kRowPadding; };
    // Stages are shorter if large scales leave little memory to the ring.
    int most_stage = most_rounds(kValues) * kRoundBytes;
    if (kFewestSlots * kTileRows * distance_of(most_stage) > most_ring) most_stage = kRoundBytes;
    const auto stages = static_cast<int>(ceil_div(p.row_bytes, most_stage));
    const auto stage_bytes = static_cast<int>(ceil_div(ceil_div(p.row_bytes, stages), kQuadBytes)) * kQuadBytes;
    StageRows rows{.bytes = stage_bytes, .distance = distance_of(stage_bytes), .in_flight = 0};
    const int slot_bytes = kTileRows * rows.distance;
    const std::int64_t tiles = p.n / (p.gate == Gate::kNone ? kTileRows : kTileRows / 2);
    const std::int64_t blocks = std::min(tiles, 2 * call.workers);
    const std::int64_t most = ceil_div(tiles, blocks) * stages;  // maximum number of stages of a block
    p.slots = static_cast<int>(std::min({most, std::int64_t{kMostRingSlots}, std::int64_t{most_ring / slot_bytes}}));
    // The number of stages in flight is limited only if a stage has at least kLimitedBoxBytes bytes. Other kernels have
    // the same rule for their boxes. Smaller stages, which come from values of four bits or from large scales, gain
    // nothing from a limit.
    rows.in_flight = kTileRows * stage_bytes >= kLimitedBoxBytes ? std::min(p.slots, kBoxesInFlight) : p.slots;
    const auto bytes = static_cast<std::size_t>(p.slots * slot_bytes + 2 * p.scales.slot);
    const LaunchShape shape{.grid = dim3(static_cast<unsigned>(blocks)), .block = dim3((kStreamWarps + 1) * kWarp)};
    return make_cuda_op(
        name, [=](cudaStream_t stream) { launch_with(kKernel, shape, bytes, /*early=*/true, stream, p, rows); });
  }
};

}  // namespace

bool quantised_streamed_serves(const QuantisedCall& p) {
  return !p.deterministic && (p.dtype == ir::DType::kBFloat16 || p.dtype == ir::DType::kFloat16) && p.m >= 1 &&
         p.m <= kMostStreamedRows && p.n % kTileRows == 0 && p.w.row_bytes() % kQuadBytes == 0 && is_aligned(p.x) &&
         is_aligned(p.w.values) && can_launch_early() && scale_place(p.w).has_value() &&
         tile_scales(p.w, p.gate).has_value();
}

Result<std::unique_ptr<BoundOp>> bind_quantised_streamed(const QuantisedCall& p) {
  return bind_streamed<StreamedKernel>(p);
}

}  // namespace tessera
