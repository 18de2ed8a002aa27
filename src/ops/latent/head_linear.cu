// Computes head_linear on CUDA. bfloat16 and float16 use a tensor-core kernel, whose blocks have 64 columns of one head
// and 16 or 64 rows. Other types, and sizes that are not whole packs of 16 bytes, use a plain kernel. Both kernels add
// an element's products in the order of k for any number of rows, so a row's bits do not depend on the other rows. If w
// is transposed, a forward that has few rows and need not be deterministic uses a third kernel, which loads weights
// before the preceding kernels have ended.
#include "tessera/ops/latent/head_linear.h"

#include <algorithm>
#include <string>

#include "tessera/ops/cuda/async_copy.cuh"
#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/cuda/cuda_math.cuh"
#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/cuda/cuda_shared_memory.h"
#include "tessera/ops/cuda/tensor_core.cuh"
#include "tessera/ops/latent/latent_forms.cuh"
#include "tessera/ops/latent/latent_rotation.cuh"

namespace tessera {
namespace {

using namespace cuda;

constexpr int kColumns = 64;  // columns in a block
constexpr int kDepth = 64;    // indices of k in a tile in shared memory
constexpr int kWarps = 4;
constexpr int kPack = 8;  // elements in 16 bytes
constexpr int kPacks = kDepth / kPack;

template <class T, int kRows>
struct HeadTiles {
  PermutedRows<T, kRows, kPacks> x;
  PermutedRows<T, kColumns, kPacks> w;  // each row is for one output column, or for one index of k if w is transposed
};
static_assert(kColumns == kDepth, "a tile of w has one shape, whether it is transposed or not");
constexpr int kStages = 2;

// Applies the rotary embedding to `rotated` values of one head in each of `count` rows. All threads of the block call
// it.
template <class T>
__device__ inline void turn_rows(const HeadLinearProblem& p, const HeadLinearExtras& extras, std::int64_t head,
                                 std::int64_t first_row, std::int64_t count) {
  const int half = extras.rotated / 2;
  for (int i = static_cast<int>(threadIdx.x); i < static_cast<int>(min(count, p.rows - first_row)) * half;
       i += static_cast<int>(blockDim.x)) {
    const std::int64_t row = first_row + i / half;
    turn(reinterpret_cast<const T*>(p.x) + row * p.x_stride + head * p.x_dim + p.k, extras.table + row * extras.rotated,
         reinterpret_cast<T*>(p.out) + (row * p.heads + head) * p.out_dim + p.n, i % half, half, extras.interleaved);
  }
}

// Computes tiles of the output on tensor cores. gridDim.x counts the blocks of columns of all heads, and then one block
// per head for the rotary values. A thread block processes every gridDim.y-th block of rows. Its four warps form
// kRowWarps groups. A group computes 16 rows, and its warps divide the columns.
template <class T, int kRowWarps, bool kTransposed>
__global__ void __launch_bounds__(kWarps* kWarp) head_tiles(const HeadLinearProblem p, const HeadLinearExtras extras) {
  constexpr int kRows = 16 * kRowWarps;
  constexpr int kWarpColumns = kColumns * kRowWarps / kWarps;
  extern __shared__ __align__(128) unsigned char shared_bytes[];
  auto* stages = reinterpret_cast<HeadTiles<T, kRows>*>(shared_bytes);
  let_next_begin();
  wait_for_previous();
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarp;
  const int row_warp = thread / kWarp % kRowWarps;
  const int column_warp = thread / kWarp / kRowWarps;
  const std::int64_t head = blockIdx.x % p.heads;
  const std::int64_t first_column = static_cast<std::int64_t>(blockIdx.x / p.heads) * kColumns;
  const auto* x = reinterpret_cast<const T*>(p.x) + head * p.x_dim;
  const auto* w = reinterpret_cast<const T*>(p.w) + head * p.n * p.k;

  for (std::int64_t first_row = static_cast<std::int64_t>(blockIdx.y) * kRows; first_row < p.rows;
       first_row += static_cast<std::int64_t>(gridDim.y) * kRows) {
    if (!latent::has_absorbed_rows(extras.forms, static_cast<int>(first_row), kRows)) continue;
    if (first_column >= p.n) {
      turn_rows<T>(p, extras, head, first_row, kRows);
      continue;
    }
    // Loads a tile of x and one of w. Elements past the matrices' ends are loaded as zeros, so that they add nothing.
    const auto load = [&](int step, int stage) {
      const std::int64_t depth = static_cast<std::int64_t>(step) * kDepth;
      if (depth < p.k) {
        for (int i = thread; i < kRows * kPacks; i += kWarps * kWarp) {
          const std::int64_t row = first_row + i / kPacks;
          const std::int64_t d = depth + i % kPacks * kPack;
          const bool real = row < p.rows && d < p.k;
          copy_async(stages[stage].x.pack(i / kPacks, i % kPacks), x + (real ? row * p.x_stride + d : 0), real);
        }
        for (int i = thread; i < kColumns * kPacks; i += kWarps * kWarp) {
          const std::int64_t row = (kTransposed ? depth : first_column) + i / kPacks;
          const std::int64_t at = (kTransposed ? first_column : depth) + i % kPacks * kPack;
          const std::int64_t length = kTransposed ? p.n : p.k;
          const bool real = row < (kTransposed ? p.k : p.n) && at < length;
          copy_async(stages[stage].w.pack(i / kPacks, i % kPacks), w + (real ? row * length + at : 0), real);
        }
      }
      commit_copies();
    };
    const int steps = static_cast<int>(ceil_div(p.k, kDepth));
    float sum[kWarpColumns / 8][4] = {};
    load(0, 0);
    for (int step = 0; step < steps; ++step) {
      load(step + 1, (step + 1) % kStages);
      wait_for_copies<1>();
      __syncthreads();
      HeadTiles<T, kRows>& tiles = stages[step % kStages];
#pragma unroll
      for (int d = 0; d < kDepth / 16; ++d) {
        std::uint32_t a[4];
        load_matrices<false>(a, tiles.x.pack(row_warp * 16 + lane % 16, d * 2 + lane / 16));
#pragma unroll
        for (int n = 0; n < kWarpColumns / 16; ++n) {
          std::uint32_t b[4];
          const int column = column_warp * kWarpColumns + n * 16;
          if constexpr (kTransposed) {
            load_matrices<true>(b, tiles.w.pack(d * 16 + lane % 16, column / kPack + lane / 16));
          } else {
            load_matrices<false>(b, tiles.w.pack(column + lane / 16 * 8 + lane % 8, d * 2 + lane / 8 % 2));
          }
          multiply_tile<T>(sum[2 * n], a, b[0], b[1]);
          multiply_tile<T>(sum[2 * n + 1], a, b[2], b[3]);
        }
      }
      __syncthreads();
    }
    wait_for_copies<0>();

    auto* out = reinterpret_cast<T*>(p.out);
#pragma unroll
    for (int n = 0; n < kWarpColumns / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const std::int64_t row = first_row + row_warp * 16 + lane / 4 + i / 2 * 8;
        const std::int64_t column = first_column + column_warp * kWarpColumns + n * 8 + lane % 4 * 2 + i % 2;
        if (row < p.rows && column < p.n) out[(row * p.heads + head) * p.out_dim + column] = from_float<T>(sum[n][i]);
      }
  }
}

// Computes columns of one head for a few rows. w must be transposed. gridDim.x counts blocks of 64 columns, and then
// one block for the rotary values. gridDim.y counts heads. A thread has 8 columns and kHeld indices of k.
template <class T, int kHeld>
__global__ void __launch_bounds__(kWarps* kWarp)
    head_columns(const HeadLinearProblem p, const HeadLinearExtras extras) {
  __shared__ float parts[kWarps][kColumns];
  let_next_begin();
  if (!p.w_is_weight) wait_for_previous();
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarp;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kColumns + thread % kPacks * kPack;
  const std::int64_t first = static_cast<std::int64_t>(thread / kPacks) * kHeld;  // the thread's first index of k
  const std::int64_t head = blockIdx.y;
  const T* const w = reinterpret_cast<const T*>(p.w) + head * p.k * p.n;
  Pack<T, kPack> held[kHeld];
#pragma unroll
  for (int i = 0; i < kHeld; ++i)
    held[i] = first + i < p.k && column < p.n ? load_pack<T, kPack>(w + (first + i) * p.n + column) : Pack<T, kPack>{};
  if (p.w_is_weight) wait_for_previous();
  if (static_cast<std::int64_t>(blockIdx.x) * kColumns >= p.n) {
    turn_rows<T>(p, extras, head, 0, p.rows);
    return;
  }
  for (std::int64_t row = 0; row < p.rows; ++row) {
    const T* const x = reinterpret_cast<const T*>(p.x) + row * p.x_stride + head * p.x_dim + first;
    float sums[kPack] = {};
#pragma unroll
    for (int i = 0; i < kHeld; i += kPack) {
      const Pack<T, kPack> own = first + i < p.k ? load_pack<T, kPack>(x + i) : Pack<T, kPack>{};
#pragma unroll
      for (int j = 0; j < kPack; ++j)
#pragma unroll
        for (int c = 0; c < kPack; ++c) sums[c] = fmaf(to_float(own.at[j]), to_float(held[i + j].at[c]), sums[c]);
    }
#pragma unroll
    for (int c = 0; c < kPack; ++c) {
      for (int step = kPacks; step < kWarp; step *= 2) sums[c] += __shfl_xor_sync(0xffffffffu, sums[c], step);
      if (lane < kPacks) parts[thread / kWarp][lane * kPack + c] = sums[c];
    }
    __syncthreads();
    const std::int64_t own_column = static_cast<std::int64_t>(blockIdx.x) * kColumns + thread;
    if (thread < kColumns && own_column < p.n) {
      float sum = 0;
#pragma unroll
      for (int warp = 0; warp < kWarps; ++warp) sum += parts[warp][thread];
      reinterpret_cast<T*>(p.out)[(row * p.heads + head) * p.out_dim + own_column] = from_float<T>(sum);
    }
    __syncthreads();
  }
}

constexpr int kPlainTile = 16;

// Computes tiles of the output in float32. gridDim.x counts the blocks of columns of all heads, and then one block per
// head for the rotary values. gridDim.y counts blocks of rows. Each of a block's 256 threads computes one element of a
// 16 x 16 tile, from tiles in shared memory.
template <class T>
__global__ void __launch_bounds__(kPlainTile* kPlainTile)
    head_products(const HeadLinearProblem p, const HeadLinearExtras extras) {
  __shared__ float x_tile[kPlainTile][kPlainTile + 1];
  __shared__ float w_tile[kPlainTile][kPlainTile + 1];
  let_next_begin();
  wait_for_previous();
  const int tx = static_cast<int>(threadIdx.x) % kPlainTile;
  const int ty = static_cast<int>(threadIdx.x) / kPlainTile;
  const std::int64_t head = blockIdx.x % p.heads;
  const std::int64_t first_column = static_cast<std::int64_t>(blockIdx.x / p.heads) * kPlainTile;
  if (first_column >= p.n) {
    turn_rows<T>(p, extras, head, static_cast<std::int64_t>(blockIdx.y) * kPlainTile, kPlainTile);
    return;
  }
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.y) * kPlainTile + ty;
  const auto* x = reinterpret_cast<const T*>(p.x) + head * p.x_dim;
  const auto* w = reinterpret_cast<const T*>(p.w) + head * p.n * p.k;
  float sum = 0;
  for (std::int64_t depth = 0; depth < p.k; depth += kPlainTile) {
    const std::int64_t d = depth + tx;
    x_tile[ty][tx] = row < p.rows && d < p.k ? to_float(x[row * p.x_stride + d]) : 0.0f;
    // The layout is w_tile[column][d], whether or not w is transposed. Neighbouring threads read neighbouring elements
    // of w.
    if (p.transposed) {
      const bool real = depth + ty < p.k && first_column + tx < p.n;
      w_tile[tx][ty] = real ? to_float(w[(depth + ty) * p.n + first_column + tx]) : 0.0f;
    } else {
      const bool real = first_column + ty < p.n && d < p.k;
      w_tile[ty][tx] = real ? to_float(w[(first_column + ty) * p.k + d]) : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kPlainTile; ++i) sum = fmaf(x_tile[ty][i], w_tile[tx][i], sum);
    __syncthreads();
  }
  if (row < p.rows && first_column + tx < p.n)
    reinterpret_cast<T*>(p.out)[(row * p.heads + head) * p.out_dim + first_column + tx] = from_float<T>(sum);
}

LaunchShape blocks_of(const HeadLinearProblem& p, const HeadLinearExtras& extras, std::int64_t columns,
                      std::int64_t rows, std::int64_t threads) {
  if (p.rows == 0) return {};
  const std::int64_t parts = ceil_div(p.n, columns) + (extras.rotated > 0 ? 1 : 0);
  return {.grid = dim3(static_cast<unsigned>(parts * p.heads), static_cast<unsigned>(ceil_div(p.rows, rows))),
          .block = dim3(static_cast<unsigned>(threads))};
}

// The maximum of gridDim.y if blocks of rows may be skipped (LatentForms). With this many blocks of rows every
// multiprocessor is already occupied.
constexpr unsigned kRowBlocksOfForms = 8;

template <class T, int kRowWarps, bool kTransposed>
Result<std::unique_ptr<BoundOp>> bind_tiles(const HeadLinearProblem& p, const HeadLinearExtras& extras) {
  constexpr auto kKernel = head_tiles<T, kRowWarps, kTransposed>;
  constexpr std::size_t kBytes = kStages * sizeof(HeadTiles<T, 16 * kRowWarps>);
  TRY(allow_shared_memory(reinterpret_cast<const void*>(kKernel), kBytes, "head_linear"));
  LaunchShape shape = blocks_of(p, extras, kColumns, 16 * kRowWarps, kWarps * kWarp);
  if (extras.forms.least_rows != INT_MAX) shape.grid.y = std::min(shape.grid.y, kRowBlocksOfForms);
  return make_cuda_op("head_linear", [=](cudaStream_t stream) {
    launch_with(kKernel, shape, kBytes, can_launch_early(), stream, p, extras);
  });
}

template <class T, int kRowWarps>
Result<std::unique_ptr<BoundOp>> bind_tiles(const HeadLinearProblem& p, const HeadLinearExtras& extras) {
  return p.transposed ? bind_tiles<T, kRowWarps, true>(p, extras) : bind_tiles<T, kRowWarps, false>(p, extras);
}

constexpr std::int64_t kFewRows = 8;

template <class T, int kHeld>
std::unique_ptr<BoundOp> bind_columns(const HeadLinearProblem& p, const HeadLinearExtras& extras) {
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(ceil_div(p.n, kColumns) + (extras.rotated > 0 ? 1 : 0)),
                                       static_cast<unsigned>(p.heads)),
                          .block = dim3(kWarps * kWarp)};
  return make_cuda_op("head_linear",
                      [=](cudaStream_t stream) { launch_early(head_columns<T, kHeld>, shape, stream, p, extras); });
}

}  // namespace

Result<std::unique_ptr<BoundOp>> bind_head_linear_cuda(const HeadLinearProblem& p, ir::DType dtype,
                                                       const HeadLinearExtras& extras) {
  if (ceil_div(p.rows, 16) > kMaxGridY)
    return unimplemented("latent_attention on CUDA takes at most " + std::to_string(16 * kMaxGridY) + " rows, not " +
                         std::to_string(p.rows));
  return dispatch_dtype(dtype, "latent_attention", [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    if constexpr (sizeof(T) == 2) {
      // head_tiles and head_columns need rows that begin at multiples of 16 bytes, and packs that do not extend past a
      // row's end.
      const std::int64_t w_length = p.transposed ? p.n : p.k;
      if (p.k % kPack == 0 && p.x_dim % kPack == 0 && p.x_stride % kPack == 0 && w_length % kPack == 0) {
        const bool few = p.transposed && !p.deterministic && p.rows > 0 && p.rows <= kFewRows;
        constexpr int kLanes = kWarps * kWarp / kPacks;  // threads that divide k among them
        if (few && p.k <= kLanes * 8) return bind_columns<T, 8>(p, extras);
        if (few && p.k <= kLanes * 16) return bind_columns<T, 16>(p, extras);
        return p.rows <= 16 ? bind_tiles<T, 1>(p, extras) : bind_tiles<T, 4>(p, extras);
      }
    }
    const LaunchShape shape = blocks_of(p, extras, kPlainTile, kPlainTile, kPlainTile * kPlainTile);
    return make_cuda_op("head_linear",
                        [=](cudaStream_t stream) { launch_early(head_products<T>, shape, stream, p, extras); });
  });
}

}  // namespace tessera
