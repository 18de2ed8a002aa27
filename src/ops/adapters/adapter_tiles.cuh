// Tensor-core kernels for adapter_shrink and adapter_whole_linear, for 16-bit types.
//
// The products of adapter_shrink and adapter_add are small: a decode step reads 2 MiB of an 8B model's adapter in each
// layer, so latency matters most. The matrices and the table of rows do not depend on the preceding kernels. So a block
// first loads as much of its matrix as its registers hold, then waits for the preceding kernels (cuda_launch.cuh).
//
// The kernel shrink_few has few blocks, which together hold all of A in registers if A has at most 16384 columns. A
// cluster takes 16 rows of A, and its blocks divide the columns of these rows. With up to 8 rows of x, blocks are
// large, because small blocks in large clusters would start too slowly. With more rows of x, blocks are small, so that
// a multiprocessor has room for blocks of the preceding and the next kernel too. In product_many, a block multiplies up
// to 64 rows of x by 48 rows of A, so it reads x once for 48 rows of A. The order of a sum does not depend on the
// number of rows, so deterministic forwards always use product_many. adapter_whole_linear also uses it, because a whole
// matrix is far too large for registers. On Hopper and newer, other forwards of more than 1024
// rows use shrink_tiles (adapter_shrink_tiles.cuh).
#pragma once

#include <cstdint>
#include <type_traits>

#include "tessera/ops/adapters/adapter_change.cuh"
#include "tessera/ops/adapters/adapter_linear.h"
#include "tessera/ops/adapters/adapter_whole.h"
#include "tessera/ops/cuda/async_copy.cuh"
#include "tessera/ops/cuda/box_copy.cuh"
#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/cuda/cuda_math.cuh"
#include "tessera/ops/cuda/tensor_core.cuh"

namespace tessera::cuda::adapters {

inline constexpr int kValues = 16;       // rows of A in a tensor-core product
inline constexpr int kStepColumns = 32;  // columns of a warp in a step: 4 lanes (a quad) load 16 bytes each
inline constexpr int kManyWarps = 8;     // warps of a block of product_many
inline constexpr int kMostGroups = 3;    // maximum number of groups of kValues rows of A in a block

// Returns 16 bytes of a row if `is_there`, else zeros.
template <class T>
__device__ inline uint4 load_or_zero(const T* from, bool is_there) {
  return is_there ? *reinterpret_cast<const uint4*>(from) : uint4{0, 0, 0, 0};
}

// Stores a value in block `block` of the cluster, at the offset that `own` has in the calling block's shared memory.
__device__ inline void store_to_block(float* own, unsigned block, float value) {
  asm volatile(
      "{\n"
      ".reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "st.shared::cluster.f32 [there], %2;\n"
      "}\n" ::"r"(shared_address(own)),
      "r"(block), "f"(value)
      : "memory");
}

// A chunk of rows with one adapter.
struct Chunk {
  std::int32_t slot;  // negative: there is no such chunk
  std::int32_t begin = 0;
  std::int32_t count = 0;

  __device__ Chunk(const AdapterRows& table, unsigned i) : slot(table.chunk_slots[i]) {
    if (slot < 0) return;
    begin = table.chunk_begins[i];
    count = table.chunk_sizes[i];
  }
};

// Loads the two rows of A that a lane needs. They belong to the kValues rows that begin at row `first_value`.
template <class T>
struct RowsOfA {
  const T* from[2];
  bool counts[2];  // whether the row is within the module's rank
  std::int64_t cols;

  __device__ RowsOfA(const AdapterProductArgs& in, std::int32_t slot, std::int32_t first_value) : cols(in.cols) {
    const std::int32_t values = in.modules * in.rank;
#pragma unroll
    for (int v = 0; v < 2; ++v) {
      const std::int32_t n = first_value + static_cast<int>(threadIdx.x) % kWarp / 4 + v * 8;
      counts[v] = slot >= 0 && n < values && n % in.rank < in.ranks[slot * in.modules + n / in.rank];
      from[v] = static_cast<const T*>(in.a) + (counts[v] ? (std::int64_t{slot} * values + n) * in.cols : 0);
    }
  }
  __device__ void load(uint4 (&to)[2], std::int64_t column) const {
#pragma unroll
    for (int v = 0; v < 2; ++v) to[v] = load_or_zero(from[v] + column, counts[v] && column < cols);
  }
};

// Loads the rows of x that a lane needs. These are every eighth row of a chunk, from row lane / 4 on.
template <class T, int kEights>
struct RowsOfX {
  const T* from[kEights];
  bool is_row[kEights];
  std::int64_t cols;

  __device__ RowsOfX(const AdapterProductArgs& in, const Chunk& chunk) : cols(in.cols) {
#pragma unroll
    for (int e = 0; e < kEights; ++e) {
      const int i = e * 8 + static_cast<int>(threadIdx.x) % kWarp / 4;
      is_row[e] = i < chunk.count;
      from[e] = static_cast<const T*>(in.x) + (is_row[e] ? in.table.order[chunk.begin + i] * in.cols : 0);
    }
  }
  __device__ void load(uint4 (&to)[kEights], std::int64_t column) const {
#pragma unroll
    for (int e = 0; e < kEights; ++e) to[e] = load_or_zero(from[e] + column, is_row[e] && column < cols);
  }
};

// The sums of a warp for 16 rows of A and kEights · 8 rows of x, in the register layout of the tensor-core instruction.
template <int kEights>
struct Sums {
  float at[kEights][4] = {};

  template <class T>
  __device__ void add_products(const uint4 (&a)[2], const uint4 (&x)[kEights]) {
#pragma unroll
    for (int e = 0; e < kEights; ++e) {
      multiply_tile<T>(at[e], {a[0].x, a[1].x, a[0].y, a[1].y}, x[e].x, x[e].y);
      multiply_tile<T>(at[e], {a[0].z, a[1].z, a[0].w, a[1].w}, x[e].z, x[e].w);
    }
  }
  // Calls f(row of A, row of x, sum) for the lane's sums.
  template <class F>
  __device__ void each(const F& f) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
    for (int e = 0; e < kEights; ++e)
#pragma unroll
      for (int i = 0; i < 4; ++i) f(lane / 4 + i / 2 * 8, e * 8 + lane % 4 * 2 + i % 2, at[e][i]);
  }
};

// Returns whether the operator computes results for the rows of a slot.
__device__ inline bool has_results(const AdapterShrinkArgs&, std::int32_t) { return true; }
__device__ inline bool has_results(const AdapterWholeLinearArgs& in, std::int32_t slot) { return in.ranks[slot] > 0; }

template <class T>
__device__ void store_result(const AdapterShrinkArgs& in, std::int64_t row, std::int32_t value, float sum) {
  in.t[row * in.modules * in.rank + value] = sum;
}
template <class T>
__device__ void store_result(const AdapterWholeLinearArgs& in, std::int64_t row, std::int32_t value, float sum) {
  static_cast<T*>(in.y)[row * in.rank + value] = from_float<T>(sum);
}

template <class T, class Args>
__device__ void store_sum(const Args& in, const Chunk& chunk, std::int32_t value, int row, float sum) {
  if (row < chunk.count && value < in.modules * in.rank)
    store_result<T>(in, in.table.order[chunk.begin + row], value, sum);
}

// Computes t = x · aᵀ for a chunk of up to kEights · 8 rows and kValues rows of A. In each step a warp takes
// kStepColumns columns. It loads A for its first kHeldSteps steps before it calls wait_for_previous(). gridDim.x counts
// the kParts blocks of a cluster, gridDim.y counts groups of kValues rows of A, and gridDim.z counts chunks.
template <class T, int kEights, int kFewWarps, int kHeldSteps, int kParts>
__global__ void __launch_bounds__(kFewWarps* kWarp) shrink_few(const AdapterShrinkArgs in) {
  constexpr int kRows = kEights * 8;
  constexpr int kResults = kValues * kRows;
  static_assert(kResults <= kFewWarps * kWarp, "a thread stores at most one result");
  __shared__ float of_warps[kFewWarps][kValues][kRows + 1];
  __shared__ float of_parts[kParts][kResults];
  let_next_begin();
  if constexpr (kParts > 1) arrive_at_cluster();
  const int part = static_cast<int>(blockIdx.x);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const Chunk chunk(in.table, blockIdx.z);
  const std::int32_t first_value = static_cast<std::int32_t>(blockIdx.y) * kValues;
  const RowsOfA<T> rows_of_a(in, chunk.slot, first_value);
  const auto column_of = [&](int step) {
    return ((std::int64_t{step} * kParts + part) * kFewWarps + warp) * kStepColumns +
           static_cast<int>(threadIdx.x) % 4 * 8;
  };
  uint4 held[kHeldSteps][2];
#pragma unroll
  for (int i = 0; i < kHeldSteps; ++i) rows_of_a.load(held[i], column_of(i));
  const RowsOfX<T, kEights> rows_of_x(in, chunk);
  wait_for_previous();

  Sums<kEights> sums;
  if (chunk.count > 0) {
    uint4 x[kHeldSteps][kEights];
#pragma unroll
    for (int i = 0; i < kHeldSteps; ++i) rows_of_x.load(x[i], column_of(i));
#pragma unroll
    for (int i = 0; i < kHeldSteps; ++i) sums.template add_products<T>(held[i], x[i]);
    for (int i = kHeldSteps; std::int64_t{i} * kParts * kFewWarps * kStepColumns < in.cols; ++i) {
      rows_of_a.load(held[0], column_of(i));
      rows_of_x.load(x[0], column_of(i));
      sums.template add_products<T>(held[0], x[0]);
    }
  }
  sums.each([&](int value, int row, float sum) { of_warps[warp][value][row] = sum; });
  __syncthreads();
  if constexpr (kParts > 1) wait_for_cluster();  // the store below writes to another block, which must have started
  const int result = static_cast<int>(threadIdx.x);
  float sum = 0;
  if (result < kResults) {
#pragma unroll
    for (int w = 0; w < kFewWarps; ++w) sum += of_warps[w][result % kValues][result / kValues];
    if constexpr (kParts > 1) store_to_block(&of_parts[part][result], 0, sum);
  }
  if constexpr (kParts > 1) {
    sync_cluster();
    if (part != 0) return;
    sum = 0;
#pragma unroll
    for (int p = 0; p < kParts; ++p) sum += result < kResults ? of_parts[p][result] : 0;
  }
  if (result < kResults) store_sum<T>(in, chunk, first_value + result % kValues, result / kValues, sum);
}

// True for adapter_whole_linear (adapter_whole.h). Its matrix is larger than x and should be read few times. So
// neighbouring blocks read the same rows of w for different chunks, and a block processes several chunks of a slot.
template <class Args>
constexpr bool kOfWhole = std::is_same_v<Args, AdapterWholeLinearArgs>;

// Returns chunk i joined with the next chunks of the same slot, up to `most_rows` rows. If an earlier chunk was already
// joined with chunk i, returns a chunk without rows. `chunks` is the number of chunks.
__device__ inline Chunk joined_chunk(const AdapterRows& table, unsigned i, unsigned chunks, std::int64_t rows,
                                     int most_rows) {
  const auto joined = static_cast<unsigned>(most_rows / adapter_chunk_rows(rows));
  Chunk chunk(table, i);
  if (chunk.slot < 0) return chunk;
  if (i % joined != 0 && table.chunk_slots[i - 1] == chunk.slot) {
    chunk.count = 0;
    return chunk;
  }
  for (unsigned j = i + 1; j % joined != 0 && j < chunks && table.chunk_slots[j] == chunk.slot; ++j)
    chunk.count += table.chunk_sizes[j];
  return chunk;
}

// Computes x · aᵀ for a chunk of up to kEights · 8 rows and for kGroups · kValues rows of A. blockIdx.x selects the
// rows of A and blockIdx.y the chunk, or the reverse if kOfWhole is true.
template <class T, int kEights, int kGroups, class Args>
__global__ void __launch_bounds__(kManyWarps* kWarp) product_many(const Args in) {
  constexpr int kRows = kEights * 8;
  __shared__ float of_warps[kManyWarps][kValues][kRows + 1];
  let_next_begin();
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const Chunk chunk =
      kOfWhole<Args> ? joined_chunk(in.table, blockIdx.x, gridDim.x, in.rows, kRows) : Chunk(in.table, blockIdx.y);
  const unsigned block_of_values = kOfWhole<Args> ? blockIdx.y : blockIdx.x;
  const std::int32_t first_value = static_cast<std::int32_t>(block_of_values) * kGroups * kValues;
  wait_for_previous();
  if (chunk.count == 0 || !has_results(in, chunk.slot)) return;
  const RowsOfX<T, kEights> rows_of_x(in, chunk);
  Sums<kEights> sums[kGroups];
  const auto rows_of_a = [&](int group) { return RowsOfA<T>(in, chunk.slot, first_value + group * kValues); };
  const RowsOfA<T> first_rows = rows_of_a(0);
  [[maybe_unused]] const RowsOfA<T> second_rows = rows_of_a(kGroups > 1 ? 1 : 0);
  [[maybe_unused]] const RowsOfA<T> third_rows = rows_of_a(kGroups > 2 ? 2 : 0);
#pragma unroll(kEights* kGroups == 1 ? 4 : 2)
  for (std::int64_t column = std::int64_t{warp} * kStepColumns + threadIdx.x % 4 * 8;
       column - threadIdx.x % 4 * 8 < in.cols; column += kManyWarps * kStepColumns) {
    uint4 x[kEights];
    uint4 a[kGroups][2];
    rows_of_x.load(x, column);
    first_rows.load(a[0], column);
    if constexpr (kGroups > 1) second_rows.load(a[1], column);
    if constexpr (kGroups > 2) third_rows.load(a[2], column);
#pragma unroll
    for (int g = 0; g < kGroups; ++g) sums[g].template add_products<T>(a[g], x);
  }
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    if (g > 0) __syncthreads();
    sums[g].each([&](int value, int row, float sum) { of_warps[warp][value][row] = sum; });
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kValues * kRows; i += kManyWarps * kWarp) {
      const int value = i % kValues;
      float sum = 0;
#pragma unroll
      for (int w = 0; w < kManyWarps; ++w) sum += of_warps[w][value][i / kValues];
      store_sum<T>(in, chunk, first_value + g * kValues + value, i / kValues, sum);
    }
  }
}

}  // namespace tessera::cuda::adapters
