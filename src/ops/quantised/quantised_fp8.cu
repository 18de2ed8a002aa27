// Binds quantised_linear with rows of x that are rounded to E4M3 (quantised_fp8.cuh), alone and joined with the
// operators before and after it. With few rows, the kernel of the product rounds x. With more rows, a separate kernel
// first rounds x. cuBLASLt computes the product if takes_library() is true, and otherwise a kernel of this folder does.
#include "tessera/ops/quantised/quantised_fp8.cuh"

#include <utility>
#include <vector>

#include "tessera/device/alignment.h"
#include "tessera/ops/contract/bound_sequence.h"
#include "tessera/ops/cuda/sm90a_code.h"
#include "tessera/ops/linear/linear_cuda.h"
#include "tessera/ops/quantised/convert_rows.cuh"
#include "tessera/ops/quantised/quantised_bind.cuh"
#include "tessera/ops/quantised/quantised_kernels.cuh"
#include "tessera/ops/quantised/rounded_library.h"
#include "tessera/ops/quantised/rounded_many.cuh"
#include "tessera/ops/quantised/rounded_wide.cuh"

namespace tessera {
namespace {

using namespace cuda;
using namespace cuda::quantised;
using Inputs = QuantisedProblem::Inputs;

// The layout of rounded rows in the workspace.
struct RoundedLayout {
  std::int64_t scale_stride;
  std::size_t scales;  // offset of the scales
  std::size_t size;
};

RoundedLayout lay_out_rounded(const QuantisedCall& p) {
  RoundedLayout l{.scale_stride = ceil_div(p.m, std::int64_t{kManyRows}) * kManyRows,
                  .scales = align_up(static_cast<std::size_t>(p.m * p.k)),
                  .size = 0};
  const std::int64_t groups = ceil_div(p.k, std::int64_t{kRoundedGroup});
  l.size = l.scales + align_up(static_cast<std::size_t>(groups * l.scale_stride) * sizeof(float));
  return l;
}

RoundedRows rounded_rows(const QuantisedCall& p) {
  const RoundedLayout l = lay_out_rounded(p);
  return {.values = reinterpret_cast<std::uint8_t*>(p.workspace),
          .scales = reinterpret_cast<float*>(p.workspace + l.scales),
          .scale_stride = l.scale_stride};
}

// Returns whether all rows of a tile of w share one scale for each 128 columns, or each row of w has a single scale.
// Also requires that n is a multiple of 16. rounded_many.cuh and WideRoundedProduct need this. With a gate, a tile is
// half gate rows and half up rows.
bool has_tile_scales(const QuantisedCall& p) {
  const std::int64_t part = p.gate == Gate::kNone ? kTileWeights : kTileWeights / 2;
  const bool by_block = p.w.format.group_rows % part == 0 && (p.gate == Gate::kNone || p.n / 2 % part == 0);
  return p.n % 16 == 0 && (p.w.num_groups == 1 || by_block);
}

// Returns whether clusters of blocks that split k (WideRoundedProduct) are faster than a block for each tile. Both
// times are estimated, in nanoseconds: a fixed part, and a part for each stage of 128 columns that a block multiplies
// (measured on an H200, where cuBLASLt has a block for each tile). With too many tiles no block can split k.
bool wide_split_wins(const QuantisedCall& p) {
  constexpr std::int64_t kSplitFixed = 5000;
  constexpr std::int64_t kSplitStage = 630;
  constexpr std::int64_t kWholeFixed = 3500;
  constexpr std::int64_t kWholeStage = 380;
  if (p.deterministic || p.m <= kWideRows / 2 || !has_tile_scales(p)) return false;
  const std::int64_t tiles = ceil_div(p.m, std::int64_t{kWideRows}) * weight_tiles_of(p);
  const std::int64_t stages = ceil_div(p.k, std::int64_t{kRoundedGroup});
  const std::int64_t split = std::min({p.workers / tiles, std::int64_t{kMostSplit}, stages / 2});
  return split > 1 && kSplitFixed + kSplitStage * ceil_div(stages, split) < kWholeFixed + kWholeStage * stages;
}

template <class T>
Result<std::unique_ptr<BoundOp>> make_many(const char* name, const QuantisedCall& p, const RoundedRows& rows) {
  const std::int64_t row_elements = p.k / 2;  // the map's elements have 16 bits
  const std::int64_t row_tiles = ceil_div(p.m, std::int64_t{kManyRows});
  const std::int64_t items = row_tiles * ceil_div(p.n, std::int64_t{kManyWeights * kManyCluster});
  const CUtensorMap x = TRY(
      encode_tensor_map(ir::DType::kBFloat16, rows.values,
                        std::array{TensorBox{.size = row_elements, .stride = 1, .box = kRoundedGroup / 2},
                                   TensorBox{.size = p.m, .stride = row_elements, .box = kManyRows / kManyCluster}}));
  const CUtensorMap values = TRY(map_of_values(p, kRoundedGroup));
  const ManyRounded<T> bound{.x = x,
                             .values = values,
                             .x_scales = rows.scales,
                             .w_scales = reinterpret_cast<const float*>(p.w.scales),
                             .bias = reinterpret_cast<const T*>(p.bias),
                             .residual = reinterpret_cast<const T*>(p.residual),
                             .y = reinterpret_cast<T*>(p.y),
                             .scale_stride = static_cast<int>(rows.scale_stride),
                             .w_groups = static_cast<int>(p.w.num_groups),
                             .group_rows = static_cast<int>(p.w.format.group_rows),
                             .m = static_cast<int>(p.m),
                             .n = static_cast<int>(p.y_columns()),
                             .k = static_cast<int>(p.k),
                             .row_tiles = static_cast<int>(row_tiles),
                             .items = static_cast<int>(items),
                             .gate = p.gate};
  const std::int64_t at_once = TRY(
      clusters_at_once(reinterpret_cast<const void*>(rounded_many<T>), kManyThreads, kManyCluster, kManyBytes, name));
  const std::int64_t clusters = std::min(items, at_once);
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(clusters * kManyCluster)),
                          .block = dim3(kManyThreads),
                          .cluster = kManyCluster};
  return make_cuda_op(name, [=](cudaStream_t stream) {
    launch_with(rounded_many<T>, shape, kManyBytes, /*early=*/true, stream, bound);
  });
}

const char* name_of(const QuantisedCall& p) {
  return p.gate == Gate::kNone ? "quantised_linear, rounded rows" : "quantised_linear and gate, rounded rows";
}

// Makes the kernel that rounds x itself.
template <class T>
Result<std::unique_ptr<BoundOp>> make_rounding_product(const QuantisedCall& p) {
  return make_block<RoundedProduct<T, kMostRoundingRows, true>>(name_of(p), p, {});
}

// Makes a kernel of this folder that reads rounded rows.
template <class T>
Result<std::unique_ptr<BoundOp>> make_own(const QuantisedCall& p, const RoundedRows& rounded) {
  const char* const name = name_of(p);
  const TileRows rows{
      .data = rounded.values, .elements = p.k / 2, .scales = rounded.scales, .scale_stride = rounded.scale_stride};
  if (wide_split_wins(p)) return make_block<WideRoundedProduct<T>>(name, p, rows);
  if (p.m <= 32) return make_block<RoundedProduct<T, 32>>(name, p, rows);
  if (p.m <= 64) return make_block<RoundedProduct<T, 64>>(name, p, rows);
  if (has_tile_scales(p)) return make_many<T>(name, p, rounded);
  return make_block<RoundedProduct<T, 128>>(name, p, rows);
}

// Binds the product, and sets `rows` to the rounded rows that it reads.
template <class T>
Result<std::unique_ptr<BoundOp>> make_product(const QuantisedCall& p, RoundedRows& rows, Device& device) {
  rows = rounded_rows(p);
  if (takes_library(p)) {
    std::unique_ptr<BoundOp> product =
        TRY(bind_rounded_library(p, {.values = rows.values, .scales = rows.scales}, device));
    if (product != nullptr) {
      rows.scale_stride = p.m;
      return Result<std::unique_ptr<BoundOp>>(std::move(product));
    }
  }
  return make_own<T>(p, rows);
}

template <class T>
Result<std::unique_ptr<BoundOp>> make(const QuantisedCall& p, const MakeRows& make_rows, Device& device) {
  if (!make_rows && rounds_itself(p)) return make_rounding_product<T>(p);
  RoundedRows rows{};
  std::unique_ptr<BoundOp> product = TRY(make_product<T>(p, rows, device));
  std::vector<std::unique_ptr<BoundOp>> parts;
  parts.push_back(make_rows ? make_rows(rows) : make_converting<T>(p, rows));
  if (parts[0] == nullptr) return std::unique_ptr<BoundOp>();
  parts.push_back(std::move(product));
  return Result<std::unique_ptr<BoundOp>>(std::make_unique<BoundSequence>(std::move(parts)));
}

}  // namespace

bool quantised_fp8_serves(const QuantisedCall& p) {
  const QuantisedFormat& f = p.w.format;
  const bool by_group = p.inputs == Inputs::kGroup && f.group_cols == kRoundedGroup && p.w.num_groups > 1;
  const bool by_token = p.inputs == Inputs::kToken && p.w.num_groups == 1;
  return (p.dtype == ir::DType::kBFloat16 || p.dtype == ir::DType::kFloat16) && f.values == Values::kE4M3 &&
         f.scales == Scales::kFloat32 && !f.groups && !f.factor && (by_group || by_token) && p.m >= 1 &&
         p.y_columns() % 8 == 0 && p.k % 16 == 0 && is_aligned(p.x) && is_aligned(p.w.values) && is_aligned(p.bias) &&
         is_aligned(p.residual) && is_aligned(p.y) &&
         runs_sm90a_code(reinterpret_cast<const void*>(quantised_block<RoundedProduct<__nv_bfloat16, 32>>));
}

bool rounds_itself(const QuantisedCall& p) { return p.m <= kMostRoundingRows; }

bool takes_library(const QuantisedCall& p) {
  return !p.deterministic && p.gate == Gate::kNone && rounded_library_serves(p) && !wide_split_wins(p);
}

std::size_t quantised_fp8_workspace(const QuantisedCall& p) { return rounds_itself(p) ? 0 : lay_out_rounded(p).size; }

Result<std::unique_ptr<BoundOp>> bind_quantised_fp8(const QuantisedCall& p, const MakeRows& make_rows, Device& device) {
  return p.dtype == ir::DType::kBFloat16 ? make<__nv_bfloat16>(p, make_rows, device)
                                         : make<__half>(p, make_rows, device);
}

}  // namespace tessera
