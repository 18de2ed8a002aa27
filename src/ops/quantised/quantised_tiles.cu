// Binds the kernel of tiles of quantised_linear (quantised_tiles.cuh), alone and joined with the gate.
#include "tessera/ops/quantised/quantised_tiles.cuh"

#include <algorithm>
#include <array>

#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/cuda/cuda_shared_memory.h"
#include "tessera/ops/cuda/sm90a_code.h"
#include "tessera/ops/cuda/tensor_map.h"
#include "tessera/ops/linear/linear_cuda.h"
#include "tessera/ops/quantised/quantised_cuda.h"

namespace tessera {
namespace {

using namespace cuda;
using namespace cuda::quantised;

constexpr int kNotServed = -1;
constexpr int kFewTileRows = 64;    // rows of x in a tile of few rows
constexpr int kManyTileRows = 128;  // rows of x in other tiles
constexpr int kRingBytes = 224 << 10;

// The scales of a row in a stage, 0 where a scale is that of a whole row; kNotServed for other formats.
int groups_of_stage(const QuantisedMatrix& w) {
  const QuantisedFormat& f = w.format;
  if (f.groups) return kNotServed;
  if (f.values == Values::kE2M1) {
    const bool nvfp4 = f.scales == Scales::kE4M3 && f.group_cols == kNvfp4Group && f.group_rows == 1;
    return nvfp4 && w.cols % kStageColumns == 0 ? kStageColumns / static_cast<int>(kNvfp4Group) : kNotServed;
  }
  if (f.scales != Scales::kFloat32) return kNotServed;
  const bool of_rows = w.num_groups == 1;
  switch (f.values) {
    case Values::kInt8: return of_rows ? 0 : kNotServed;
    case Values::kE4M3: return of_rows ? 0 : f.group_cols % kStageColumns == 0 ? 1 : kNotServed;
    default: return of_rows || f.group_cols % kStageColumns == 0 ? 1 : f.group_cols % 32 == 0 ? 4 : kNotServed;
  }
}

struct Arrangement {
  int split = 1;
  bool shared = false;
};

// Blocks split k while they fill the multiprocessors no more than once and have two stages each. In a deterministic
// forward nothing that depends on m may change the order of sums.
Arrangement arrange(const QuantisedProblem& p, std::int64_t tiles, bool deterministic) {
  if (tiles >= p.workers) return {.shared = true};
  if (deterministic) return {};
  int split = 1;
  const std::int64_t stages = ceil_div(p.k, std::int64_t{kStageColumns});
  while (split < kMostSplit && 2 * split * tiles <= p.workers && stages >= 4 * split) split *= 2;
  return {.split = split};
}

Result<CUtensorMap> map_of_values(const QuantisedProblem& p, Gate gate) {
  const std::int64_t elements = p.w.row_bytes() / 2;  // the map is one of 16-bit elements
  const int box = stage_row_bytes(p.w.format.values) / 2;
  if (gate == Gate::kNone)
    return encode_tensor_map(ir::DType::kBFloat16, p.w.values,
                             std::array{TensorBox{.size = elements, .stride = 1, .box = box},
                                        TensorBox{.size = p.n, .stride = elements, .box = kTileWeights}});
  return encode_row_groups(ir::DType::kBFloat16, p.w.values,
                           {.matrices = 1, .rows = p.n, .columns = elements, .first = 8, .second = p.n / 2},
                           kTileWeights, box);
}

template <class T, Values kValues, int kGroups, int kN>
Result<std::unique_ptr<BoundOp>> make(const char* name, const QuantisedProblem& p, Gate gate, std::byte* y,
                                      bool deterministic) {
  constexpr auto kKernel = quantised_tiles<T, kValues, kGroups, kN>;
  constexpr int kStages = std::min(kMostTileStages, (kRingBytes - 1024) / kTileStage<kValues, kN>);
  constexpr std::size_t kBytes = 1024 + static_cast<std::size_t>(kStages) * kTileStage<kValues, kN>;
  static_assert(kN * kTileSumRow * 4 <= kStages * kTileStage<kValues, kN>);
  const std::int64_t row_tiles = ceil_div(p.m, std::int64_t{kN});
  const std::int64_t weight_tiles = ceil_div(p.n, std::int64_t{kTileWeights});
  const Arrangement a = arrange(p, row_tiles * weight_tiles, deterministic);
  const TiledQuantised<T> bound{
      .x = TRY(encode_tensor_map(p.dtype, p.x,
                                 std::array{TensorBox{.size = p.k, .stride = 1, .box = kHalfColumns},
                                            TensorBox{.size = p.m, .stride = p.k, .box = a.shared ? kN / 2 : kN}})),
      .values = TRY(map_of_values(p, gate)),
      .w = p.w,
      .bias = reinterpret_cast<const T*>(p.bias),
      .residual = reinterpret_cast<const T*>(p.residual),
      .y = reinterpret_cast<T*>(y),
      .m = static_cast<int>(p.m),
      .n = static_cast<int>(gate == Gate::kNone ? p.n : p.n / 2),
      .k = static_cast<int>(p.k),
      .row_tiles = static_cast<int>(row_tiles),
      .split = a.split,
      .shared = a.shared,
      .stages = kStages,
      .gate = gate};
  TRY(allow_shared_memory(reinterpret_cast<const void*>(kKernel), kBytes, name));
  const std::int64_t clusters = row_tiles * (a.shared ? ceil_div(weight_tiles, std::int64_t{2}) : weight_tiles);
  const unsigned cluster = a.shared ? 2 : static_cast<unsigned>(a.split);
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(clusters) * cluster), .block = dim3(kTileThreads), .cluster = cluster};
  return make_cuda_op(name,
                      [=](cudaStream_t stream) { launch_with(kKernel, shape, kBytes, /*early=*/true, stream, bound); });
}

template <class T, Values kValues, int kGroups>
Result<std::unique_ptr<BoundOp>> make(const char* name, const QuantisedProblem& p, Gate gate, std::byte* y,
                                      bool deterministic) {
  return p.m <= kFewTileRows ? make<T, kValues, kGroups, kFewTileRows>(name, p, gate, y, deterministic)
                             : make<T, kValues, kGroups, kManyTileRows>(name, p, gate, y, deterministic);
}

template <class T>
Result<std::unique_ptr<BoundOp>> make(const char* name, const QuantisedProblem& p, Gate gate, std::byte* y,
                                      bool deterministic) {
  const int groups = groups_of_stage(p.w);
  switch (p.w.format.values) {
    case Values::kE4M3:
      return groups == 0 ? make<T, Values::kE4M3, 0>(name, p, gate, y, deterministic)
                         : make<T, Values::kE4M3, 1>(name, p, gate, y, deterministic);
    case Values::kInt8: return make<T, Values::kInt8, 0>(name, p, gate, y, deterministic);
    case Values::kE2M1: return make<T, Values::kE2M1, 8>(name, p, gate, y, deterministic);
    case Values::kInt4: break;
  }
  return groups == 1 ? make<T, Values::kInt4, 1>(name, p, gate, y, deterministic)
                     : make<T, Values::kInt4, 4>(name, p, gate, y, deterministic);
}

Result<std::unique_ptr<BoundOp>> make(const char* name, const QuantisedProblem& p, Gate gate, std::byte* y,
                                      bool deterministic) {
  return p.dtype == ir::DType::kBFloat16 ? make<__nv_bfloat16>(name, p, gate, y, deterministic)
                                         : make<__half>(name, p, gate, y, deterministic);
}

}  // namespace

bool quantised_tiles_serve(const QuantisedProblem& p) {
  return (p.dtype == ir::DType::kBFloat16 || p.dtype == ir::DType::kFloat16) && p.m >= 1 && p.n % 8 == 0 &&
         p.k % 32 == 0 && is_aligned(p.x) && is_aligned(p.w.values) && is_aligned(p.bias) && is_aligned(p.residual) &&
         is_aligned(p.y) && groups_of_stage(p.w) != kNotServed &&
         runs_sm90a_code(reinterpret_cast<const void*>(quantised_tiles<__nv_bfloat16, Values::kE4M3, 1, kFewTileRows>));
}

Result<std::unique_ptr<BoundOp>> bind_quantised_tiles(const QuantisedProblem& p, bool deterministic) {
  return make("quantised_linear, tiles", p, Gate::kNone, p.y, deterministic);
}

Result<std::unique_ptr<BoundOp>> bind_quantised_tiles_gated(std::span<const BindArgs> calls) {
  const QuantisedProblem p = make_quantised_problem(calls[0]);
  std::byte* const y = calls[1].results[0].data.raw();
  const bool deterministic = calls[0].context.limits.deterministic;
  if (deterministic || !quantised_tiles_serve(p) || p.residual != nullptr || p.n % 16 != 0 || !is_aligned(y))
    return std::unique_ptr<BoundOp>();
  return make("quantised_linear and gate, tiles", p, gate_of(calls[1].node), y, deterministic);
}

}  // namespace tessera
