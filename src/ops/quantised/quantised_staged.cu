// Binds the kernel that computes quantised_linear for very few rows (quantised_staged.cuh). One variant also computes
// the gate that follows the matmul (silu_mul or gelu_mul).
#include "tessera/ops/quantised/quantised_staged.cuh"

#include <algorithm>
#include <array>

#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/cuda/cuda_shared_memory.h"
#include "tessera/ops/cuda/tensor_map.h"
#include "tessera/ops/quantised/quantised_kernels.cuh"
#include "tessera/ops/quantised/streamed_bind.cuh"

namespace tessera {
namespace {

using namespace cuda;
using namespace cuda::quantised;

// The maximum numbers of rows of x for which this kernel is used, for values of 4 bits and of 8 bits (measured on an
// H200). With more rows of x the streamed kernel is as fast, because every row of x costs this kernel more reads from
// shared memory.
constexpr std::int64_t kMostPackedRows = 4;
constexpr std::int64_t kMostByteRows = 2;
// The maximum number of bytes that x takes in shared memory. The rest of the block's shared memory has room for three
// slots of the ring, or fewer if the scales are large.
constexpr int kMostColumnBytes = 40 << 10;
// The maximum number of bytes that a block takes in shared memory for the ring, the scales and x. Sums and barriers
// take another 12 KiB. With this limit two blocks fit on a multiprocessor.
constexpr int kMostShared = 100 << 10;

// Makes a tensor map of w's values. Its dimensions are the column within a chunk, the row within a group of eight rows,
// the group within a tile, the chunk, and the tile. Elements have 16 bits.
Result<CUtensorMap> boxes_of(const QuantisedCall& p) {
  constexpr int kElements = kChunkBytes / 2;
  const std::int64_t row = p.w.row_bytes() / 2;
  const bool is_gated = p.gate != Gate::kNone;
  // The distance in rows from the first eight rows of a tile to the second eight.
  const std::int64_t second = is_gated ? p.y_columns() : 8;
  const std::int64_t tile = is_gated ? 8 : kTileRows;
  return encode_tensor_map(
      ir::DType::kBFloat16, p.w.values,
      std::array{TensorBox{.size = kElements, .stride = 1, .box = kElements},
                 TensorBox{.size = 8, .stride = row, .box = 8}, TensorBox{.size = 2, .stride = second * row, .box = 2},
                 TensorBox{.size = row / kElements, .stride = kElements, .box = kStreamWarps},
                 TensorBox{.size = p.y_columns() / tile, .stride = tile * row, .box = 1}});
}

struct StagedKernel {
  template <class T, Values kValues, ScaleOf kScaleOf>
  static Result<std::unique_ptr<BoundOp>> bind(const QuantisedCall& call) {
    constexpr auto kKernel = quantised_staged<T, kValues, kScaleOf>;
    const char* const name =
        call.gate == Gate::kNone ? "quantised_linear, staged" : "quantised_linear and gate, staged";
    TRY(allow_shared_memory(reinterpret_cast<const void*>(kKernel), kMostShared, name));
    StreamedQuantised<T> p = streamed_arguments<T>(call);
    const CUtensorMap boxes = TRY(boxes_of(call));
    const auto columns = static_cast<int>(ceil_div(StagedColumns::bytes(p.m, static_cast<int>(call.k)), 16)) * 16;
    const int besides = 2 * p.scales.slot + columns;
    const std::int64_t tiles = p.n / (p.gate == Gate::kNone ? kTileRows : kTileRows / 2);
    const std::int64_t blocks = std::min(tiles, 2 * call.workers);
    const std::int64_t most = ceil_div(tiles, blocks) * ceil_div(p.row_bytes, kStagedBytes);  // stages of a block
    p.slots = static_cast<int>(
        std::min({most, std::int64_t{kMostRingSlots}, std::int64_t{(kMostShared - besides) / kStagedSlot}}));
    const auto bytes = static_cast<std::size_t>(p.slots * kStagedSlot + besides);
    const LaunchShape shape{.grid = dim3(static_cast<unsigned>(blocks)), .block = dim3(kStagedThreads)};
    return make_cuda_op(
        name, [=](cudaStream_t stream) { launch_with(kKernel, shape, bytes, /*early=*/true, stream, boxes, p); });
  }
};

}  // namespace

bool quantised_staged_serves(const QuantisedCall& p) {
  if (!quantised_streamed_serves(p) || p.w.row_bytes() % kChunkBytes != 0 || p.k % StagedColumns::kSumColumns != 0)
    return false;
  if (p.m > (is_packed(p.w.format.values) ? kMostPackedRows : kMostByteRows)) return false;
  const int columns = StagedColumns::bytes(static_cast<int>(p.m), static_cast<int>(p.k));
  return columns <= kMostColumnBytes && columns + 2 * tile_scales(p.w, p.gate)->slot + 2 * kStagedSlot <= kMostShared;
}

Result<std::unique_ptr<BoundOp>> bind_quantised_staged(const QuantisedCall& p) {
  return bind_streamed<StagedKernel>(p);
}

}  // namespace tessera
