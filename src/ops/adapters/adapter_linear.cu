#include "tessera/base/ceil_div.h"
#include "tessera/ops/adapters/adapter_linear.h"
#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/cuda/cuda_math.cuh"
#include "tessera/ops/cuda/cuda_op.h"

namespace tessera {
namespace cuda {
namespace {

// Rows that a block takes together. Rows of one slot read each element of its matrices once.
constexpr int kTileRows = 4;
constexpr int kTileValues = 4;  // rows of A that a block of adapter_shrink takes together
constexpr int kWarps = static_cast<int>(kBlockThreads) / kWarp;

// The slots of a tile's rows; -1 for rows past the last one and rows without an adapter.
struct TileSlots {
  std::int32_t slot[kTileRows];
  bool any = false;
  bool same = true;  // all rows have the slot of row 0
};

__device__ TileSlots tile_slots(const std::int32_t* slots, std::int64_t first, std::int64_t rows,
                                std::int32_t num_slots) {
  TileSlots tile;
#pragma unroll
  for (int i = 0; i < kTileRows; ++i) {
    const std::int32_t slot = first + i < rows ? slots[first + i] : -1;
    tile.slot[i] = slot < num_slots ? slot : -1;
    tile.any |= tile.slot[i] >= 0;
    tile.same &= tile.slot[i] == tile.slot[0];
  }
  return tile;
}

// Adds the products of a pack to the lane's sum, in order.
template <class T, int N>
__device__ float add_products(float sum, const Pack<T, N>& x, const Pack<T, N>& w) {
#pragma unroll
  for (int j = 0; j < N; ++j) sum = fmaf(to_float(x.at[j]), to_float(w.at[j]), sum);
  return sum;
}

// Computes t = x · aᵀ. A block takes a tile of rows and of rows of A, and its threads share out the columns. A sum has
// the same order however the rows are grouped: the packs of a thread, then its warp, then the warps. Launched with
// kBlockThreads threads.
template <class T, int N>
__global__ void adapter_shrink(AdapterShrinkArgs in) {
  __shared__ float partial[kWarps][kTileRows * kTileValues];
  let_next_begin();
  wait_for_previous();
  const std::int64_t first = std::int64_t{blockIdx.x} * kTileRows;
  const TileSlots tile = tile_slots(in.slots, first, in.rows, in.num_slots);
  const std::int32_t values = in.modules * in.rank;
  const std::int32_t first_value = static_cast<std::int32_t>(blockIdx.y) * kTileValues;
  bool counts[kTileRows][kTileValues];
  bool any = false;
#pragma unroll
  for (int i = 0; i < kTileRows; ++i)
#pragma unroll
    for (int v = 0; v < kTileValues; ++v) {
      const std::int32_t n = first_value + v;
      counts[i][v] = n < values && tile.slot[i] >= 0 && n % in.rank < in.ranks[tile.slot[i] * in.modules + n / in.rank];
      any |= counts[i][v];
    }
  float sum[kTileRows][kTileValues] = {};
  const T* const x = static_cast<const T*>(in.x) + first * in.cols;
  const auto row_of_a = [&](int i, int v) {
    return static_cast<const T*>(in.a) + (std::int64_t{tile.slot[i]} * values + first_value + v) * in.cols;
  };
#pragma unroll 2
  for (std::int64_t k = std::int64_t{threadIdx.x} * N; any && k < in.cols; k += kBlockThreads * N) {
    Pack<T, N> rows[kTileRows];
#pragma unroll
    for (int i = 0; i < kTileRows; ++i)
      if (tile.slot[i] >= 0) rows[i] = load_pack<T, N>(x + i * in.cols + k);
#pragma unroll
    for (int v = 0; v < kTileValues; ++v) {
      if (tile.same) {
        if (!counts[0][v]) continue;
        const Pack<T, N> w = load_pack<T, N>(row_of_a(0, v) + k);
#pragma unroll
        for (int i = 0; i < kTileRows; ++i) sum[i][v] = add_products(sum[i][v], rows[i], w);
      } else {
#pragma unroll
        for (int i = 0; i < kTileRows; ++i)
          if (counts[i][v]) sum[i][v] = add_products(sum[i][v], rows[i], load_pack<T, N>(row_of_a(i, v) + k));
      }
    }
  }
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int i = 0; i < kTileRows; ++i)
#pragma unroll
    for (int v = 0; v < kTileValues; ++v) {
      const float of_warp = warp_sum(sum[i][v]);
      if (lane == 0) partial[threadIdx.x / kWarp][i * kTileValues + v] = of_warp;
    }
  __syncthreads();
  if (threadIdx.x >= kTileRows * kTileValues) return;
  const std::int64_t row = first + threadIdx.x / kTileValues;
  const std::int32_t n = first_value + static_cast<std::int32_t>(threadIdx.x) % kTileValues;
  if (row >= in.rows || n >= values) return;
  float total = 0;
  for (int warp = 0; warp < kWarps; ++warp) total += partial[warp][threadIdx.x];
  in.t[row * values + n] = total;
}

// Returns the module of a column.
__device__ std::int32_t module_of(const AdapterRanges& ranges, std::int64_t column) {
  std::int32_t i = 0;
  while (i + 1 < ranges.count && column >= ranges.ends[i]) ++i;
  return ranges.modules[i];
}

// Computes y += scale · t · b. A thread takes a pack of neighbouring columns of one module, for a tile of rows.
template <class T, int N>
__global__ void adapter_add(AdapterAddArgs in) {
  let_next_begin();
  wait_for_previous();
  const std::int64_t first = std::int64_t{blockIdx.x} * kTileRows;
  const TileSlots tile = tile_slots(in.slots, first, in.rows, in.num_slots);
  const std::int64_t column = (std::int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * N;
  if (!tile.any || column >= in.cols) return;
  const std::int32_t module = module_of(in.ranges, column);
  const T* const b = static_cast<const T*>(in.b) + column;
  const std::int64_t slot_size = std::int64_t{in.rank} * in.cols;
  float sum[kTileRows][N] = {};
  const auto t_of = [&](int i) { return in.t + ((first + i) * in.modules + module) * in.rank; };
  if (tile.same) {
    const std::int32_t rank = in.ranks[tile.slot[0] * in.modules + module];
#pragma unroll 4
    for (std::int32_t r = 0; r < rank; ++r) {
      const Pack<T, N> w = load_pack<T, N>(b + tile.slot[0] * slot_size + r * in.cols);
#pragma unroll
      for (int i = 0; i < kTileRows; ++i) {
        const float factor = t_of(i)[r];
#pragma unroll
        for (int j = 0; j < N; ++j) sum[i][j] = fmaf(factor, to_float(w.at[j]), sum[i][j]);
      }
    }
  } else {
#pragma unroll
    for (int i = 0; i < kTileRows; ++i) {
      const std::int32_t rank = tile.slot[i] < 0 ? 0 : in.ranks[tile.slot[i] * in.modules + module];
      for (std::int32_t r = 0; r < rank; ++r) {
        const Pack<T, N> w = load_pack<T, N>(b + tile.slot[i] * slot_size + r * in.cols);
        const float factor = t_of(i)[r];
#pragma unroll
        for (int j = 0; j < N; ++j) sum[i][j] = fmaf(factor, to_float(w.at[j]), sum[i][j]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kTileRows; ++i) {
    if (tile.slot[i] < 0 || in.ranks[tile.slot[i] * in.modules + module] == 0) continue;
    const float scale = in.scales[tile.slot[i] * in.modules + module];
    T* const y = static_cast<T*>(in.y) + (first + i) * in.cols + column;
    Pack<T, N> out = load_pack<T, N>(y);
#pragma unroll
    for (int j = 0; j < N; ++j) out.at[j] = from_float<T>(fmaf(scale, sum[i][j], to_float(out.at[j])));
    store_pack(y, out);
  }
}

unsigned tiles_of(std::int64_t rows) { return static_cast<unsigned>(ceil_div(rows, std::int64_t{kTileRows})); }

template <class T, int N>
std::unique_ptr<BoundOp> make_shrink(const AdapterShrinkArgs& in) {
  const std::int64_t groups = ceil_div(std::int64_t{in.modules} * in.rank, std::int64_t{kTileValues});
  const LaunchShape shape{.grid = dim3(tiles_of(in.rows), static_cast<unsigned>(groups)), .block = dim3(kBlockThreads)};
  return make_cuda_op("adapter_shrink",
                      [=](cudaStream_t stream) { launch_early(adapter_shrink<T, N>, shape, stream, in); });
}

template <class T, int N>
std::unique_ptr<BoundOp> make_add(const AdapterAddArgs& in) {
  constexpr std::int64_t kThreads = 128;
  const LaunchShape shape{.grid = dim3(tiles_of(in.rows), static_cast<unsigned>(ceil_div(in.cols, kThreads * N))),
                          .block = dim3(kThreads)};
  return make_cuda_op("adapter_add", [=](cudaStream_t stream) { launch_early(adapter_add<T, N>, shape, stream, in); });
}

// Returns whether packs of n columns lie within one range each.
bool divides(const AdapterRanges& ranges, std::int32_t n) {
  for (std::int32_t i = 0; i < ranges.count; ++i)
    if (ranges.ends[i] % n != 0) return false;
  return true;
}

}  // namespace
}  // namespace cuda

namespace {

Result<std::unique_ptr<BoundOp>> bind_shrink(const BindArgs& args) {
  const AdapterShrinkArgs in = adapter_shrink_args(args);
  return cuda::dispatch_dtype(args.operands[0].dtype, "adapter_shrink",
                              [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
                                constexpr int kPack = cuda::kPackSize<T>;
                                if (in.cols % kPack == 0) return cuda::make_shrink<T, kPack>(in);
                                return cuda::make_shrink<T, 1>(in);
                              });
}

Result<std::unique_ptr<BoundOp>> bind_add(const BindArgs& args) {
  const AdapterAddArgs in = adapter_add_args(args);
  return cuda::dispatch_dtype(args.operands[0].dtype, "adapter_add",
                              [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
                                constexpr int kPack = cuda::kPackSize<T>;
                                if (cuda::divides(in.ranges, kPack)) return cuda::make_add<T, kPack>(in);
                                return cuda::make_add<T, 1>(in);
                              });
}

}  // namespace

const KernelDef kAdapterShrinkCuda{.op = "adapter_shrink", .name = "cuda", .bind = bind_shrink};
const KernelDef kAdapterAddCuda{.op = "adapter_add", .name = "cuda", .bind = bind_add};

}  // namespace tessera
