// Binds the streamed linear (linear_streamed.cuh), alone and joined with the gate.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/cuda/cuda_shared_memory.h"
#include "tessera/ops/linear/linear_cuda.h"
#include "tessera/ops/linear/linear_gated.h"
#include "tessera/ops/linear/linear_streamed.cuh"

namespace tessera {
namespace {

using namespace cuda;
using namespace cuda::streamed_linear;

// Returns whether the streamed kernel is the fastest: always up to eight rows. With more rows x is read as often as w,
// and the kernel that splits k is faster for large matrices (docs/measurements/prefill-decode.md).
bool is_worth_streaming(const LinearProblem& p) {
  constexpr std::int64_t kSmall = std::int64_t{16} << 20;  // in bytes of w
  if (p.m <= 8) return true;
  return 2 * p.n * p.k <= kSmall;
}

template <class T, int kEights, bool kGated, int kHeld, int kRounds, bool kAtOnce>
Result<std::unique_ptr<BoundOp>> make(const char* name, Streamed<T> p, std::int64_t workers) {
  constexpr auto kKernel = streamed<T, kEights, kGated, kHeld, kRounds, kAtOnce>;
  TRY(allow_shared_memory(reinterpret_cast<const void*>(kKernel), kMostBytes, name));
  const std::int64_t slot_bytes = std::int64_t{kTileRows} * p.row_bytes;
  const std::int64_t tiles = p.n / (kGated ? kTileRows / 2 : kTileRows);
  const std::int64_t blocks = std::min(tiles, 2 * workers);
  const std::int64_t stages = ceil_div(tiles, blocks) * ceil_div(p.k, p.stage_columns);  // total stages of a block
  p.slots = static_cast<int>(std::min({stages, std::int64_t{kMostSlots}, kMostBytes / slot_bytes}));
  const auto bytes = static_cast<std::size_t>(p.slots * slot_bytes);
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(blocks)), .block = dim3((kWarps + 1) * kWarp)};
  return make_cuda_op(name,
                      [=](cudaStream_t stream) { launch_with(kKernel, shape, bytes, /*early=*/true, stream, p); });
}

// Makes the kernel for up to eight rows of x. A tile of one or two stages is multiplied all at once, which shortens the
// loop over k when the weights arrive before x. A longer tile would keep the ring waiting
// (docs/measurements/prefill-decode.md).
template <class T, bool kGated>
Result<std::unique_ptr<BoundOp>> make_of_eight(const char* name, const Streamed<T>& p, std::int64_t workers) {
  const std::int64_t stages = ceil_div(p.k, p.stage_columns);
  const bool is_short = p.stage_columns <= kFewRounds * kRoundColumns;
  if (stages == 1) return make<T, 1, kGated, 1, kMostRounds, true>(name, p, workers);
  if (stages == 2 && is_short) return make<T, 1, kGated, 2, kFewRounds, true>(name, p, workers);
  if (stages == 2) return make<T, 1, kGated, 2, kMostRounds, true>(name, p, workers);
  if constexpr (!kGated) {
    if (stages == 3) return make<T, 1, kGated, 3, kMostRounds, false>(name, p, workers);
  }
  return make<T, 1, kGated, 1, kMostRounds, false>(name, p, workers);
}

// Makes the kernel for up to sixteen rows. There are registers for three stages of x.
template <class T, bool kGated>
Result<std::unique_ptr<BoundOp>> make_of_sixteen(const char* name, const Streamed<T>& p, std::int64_t workers) {
  if constexpr (!kGated) {
    const std::int64_t stages = ceil_div(p.k, p.stage_columns);
    if (stages == 2) return make<T, 2, kGated, 2, kMostRounds, false>(name, p, workers);
    if (stages == 3) return make<T, 2, kGated, 3, kMostRounds, false>(name, p, workers);
  }
  return make<T, 2, kGated, 1, kMostRounds, false>(name, p, workers);
}

// Makes the kernel for p.m rows. Its stages have sizes as equal as possible. It holds x in registers if the loads of a
// tile's stages, or of a block's tiles, would otherwise follow one another.
template <class T, bool kGated>
Result<std::unique_ptr<BoundOp>> make(const char* name, Streamed<T> p, std::int64_t workers) {
  const std::int64_t stages = ceil_div(p.k, kMostColumns);
  p.stage_columns = static_cast<int>(ceil_div(ceil_div(p.k, stages), kStepColumns) * kStepColumns);
  p.row_bytes = static_cast<int>(ceil_div(p.stage_columns * 2, kBanks) * kBanks + kPadding);
  return p.m <= 8 ? make_of_eight<T, kGated>(name, p, workers) : make_of_sixteen<T, kGated>(name, p, workers);
}

// Makes the kernel for `p`. If there is a gate, `y` is the gate's result.
template <class T>
Result<std::unique_ptr<BoundOp>> make(const char* name, const LinearProblem& p, Gate gate, std::byte* y) {
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
  return gated ? make<T, true>(name, s, p.workers) : make<T, false>(name, s, p.workers);
}

Result<std::unique_ptr<BoundOp>> make(const char* name, const LinearProblem& p, Gate gate, std::byte* y) {
  if (p.dtype == ir::DType::kBFloat16) return make<__nv_bfloat16>(name, p, gate, y);
  return make<__half>(name, p, gate, y);
}

// Binds a linear and its gate.
Result<std::unique_ptr<BoundOp>> bind_joined(std::span<const BindArgs> calls) {
  const LinearProblem p = make_linear_problem(calls[0]);
  if (!can_stream(calls[0]) || p.residual != nullptr) return std::unique_ptr<BoundOp>();
  return make("linear and gate, streamed", p, gate_of(calls[1].node), calls[1].results[0].data.raw());
}

}  // namespace

bool can_stream(const BindArgs& args) {
  const LinearProblem p = make_linear_problem(args);
  return allows_own_kernels(args, p) && args.operands[1].is_weight && p.m >= 1 && p.m <= kMaxRows &&
         p.k % kStepColumns == 0 && p.n % kTileRows == 0 && can_launch_early() && is_worth_streaming(p);
}

Result<std::unique_ptr<BoundOp>> bind_streamed(const LinearProblem& p) {
  return make("linear, streamed", p, Gate::kNone, p.y);
}

const std::vector<JoinedKernelDef>& joined_linear_kernels() {
  constexpr std::int64_t kAnyRows = std::numeric_limits<std::int64_t>::max();
  static const std::vector<JoinedKernelDef> kernels{
      {.ops = {"linear", "silu_mul"}, .name = "streamed", .most_rows = kMaxRows, .bind = bind_joined},
      {.ops = {"linear", "gelu_mul"}, .name = "streamed", .most_rows = kMaxRows, .bind = bind_joined},
      {.ops = {"linear", "silu_mul"}, .name = "k split", .most_rows = kMostSplitRows, .bind = bind_split_gated},
      {.ops = {"linear", "gelu_mul"}, .name = "k split", .most_rows = kMostSplitRows, .bind = bind_split_gated},
      {.ops = {"linear", "silu_mul"}, .name = "by warpgroups", .most_rows = kAnyRows, .bind = bind_gated_linear},
      {.ops = {"linear", "gelu_mul"}, .name = "by warpgroups", .most_rows = kAnyRows, .bind = bind_gated_linear}};
  return kernels;
}

}  // namespace tessera
