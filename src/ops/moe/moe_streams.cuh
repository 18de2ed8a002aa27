// Defines how weights lie in memory and how they are multiplied, for the items of work in moe_streamed.cuh. There is
// one class for each form of weights. The class for quantised weights is in moe_quantised_stream.cuh.
#pragma once

#include "tessera/ops/cuda/bulk_copy.cuh"
#include "tessera/ops/cuda/tensor_core.cuh"
#include "tessera/ops/moe/moe_mxfp4.cuh"
#include "tessera/ops/moe/moe_row_groups.cuh"

namespace tessera::cuda::moe {

inline constexpr int kStreamedWeightRows = 16;  // weight rows of an item
inline constexpr int kStreamedSlots = 32;       // maximum number of stages in shared memory
inline constexpr int kTeamOfBlock = 8;          // number of warps in a team that fills a whole block
inline constexpr int kMostTeams = 16;           // maximum number of teams of one warp in a block

// The number of a block's warps that request weights, if teams have `kTeam` warps.
template <int kTeam>
inline constexpr int kCopyingWarps = kTeam == 1 ? 4 : 1;
// Returns the number of threads of a block with `teams` teams of `kTeam` warps.
template <int kTeam>
constexpr int streamed_threads(int teams) {
  return (teams * kTeam + kCopyingWarps<kTeam>)*kWarp;
}
// The maximum number of threads of a block.
template <int kTeam>
inline constexpr int kMostThreads = streamed_threads<kTeam>(kTeam == 1 ? kMostTeams : 1);
static_assert(kMostThreads<1> <= kMostGroupingThreads && kMostThreads<kTeamOfBlock> <= kMostGroupingThreads);

// The number of columns of a chunk, which is the part of a stage that a team multiplies at a time. A thread multiplies
// 32 of these columns.
template <int kTeam>
inline constexpr int kStreamedChunk = kTeam * 128;

template <class T>
struct Streamed {
  Matmul<T> matmul;         // in the matmul of down, y is [tokens, n]
  const std::int32_t* ids;  // [pairs]
  const float* weights;     // [pairs]
  int pairs;
  int teams;  // teams of warps in a block
  int stage_columns;
  int pitch;       // the bytes from one row of a stage to the next in shared memory
  int slot_bytes;  // the bytes of a stage in shared memory
  int slots;
  int in_flight;             // maximum number of stages that a copying warp has in flight
  int inverse_top_k;         // the token of a pair is pair · inverse_top_k / 65536, exact up to kStreamedPairs
  int group_shift;           // for quantised weights: the group of a column is column >> group_shift
  float inverse_group_rows;  // for quantised weights: 1 / the number of rows that share scales
};

// Copies the first `bytes` bytes of eight rows from `low` on, and of eight rows from `high` on. Rows begin row_bytes
// apart in global memory, and `pitch` bytes apart in shared memory. If row_bytes equals `pitch`, two copies suffice.
// Otherwise sixteen are needed. Only one warp calls this function.
__device__ inline void copy_rows(const void* low, const void* high, int row_bytes, int bytes, int pitch,
                                 unsigned char* to, SharedBarrier& full) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int rows = pitch == row_bytes ? 8 : 1;  // rows in a copy
  const int first = lane * rows;
  if (first >= kStreamedWeightRows) return;
  const auto* const from = static_cast<const unsigned char*>(first < 8 ? low : high);
  bulk_copy(to + first * pitch, from + static_cast<std::int64_t>(first % 8) * row_bytes,
            static_cast<std::uint32_t>(rows * bytes), full);
}

// Stands in for a class of scales in streams that load no scales from global memory. Either their weights have no
// scales, or the scales are a part of the stage (in shared memory).
template <class T>
struct NoScales {
  __device__ void begin_item(const Streamed<T>&, int, int) {}
  __device__ void load(const Streamed<T>&, int) {}
};

// Reads 16-bit weights. Threads of a quad take neighbouring 16-byte pieces of a row. The operands of a tensor-core
// instruction may hold columns in any order, if both matrices use the same order.
template <class T, int kTeamWarps>
struct PlainStream {
  using Scales = NoScales<T>;
  static constexpr int kTeam = kTeamWarps;    // warps that share an item
  static constexpr bool kHasFactors = false;  // whether sums are multiplied with factor()
  static constexpr int kColumns = 8;          // neighbouring columns that a thread reads at once
  static constexpr int kStageColumns = 1024;  // maximum number of columns of a stage that holds a part of k
  static constexpr int kColumnMultiple = 64;  // divides the number of columns of such a stage

  // Returns the bytes of `columns` columns of a row.
  __host__ __device__ static int row_bytes(int columns) { return columns * 2; }
  // Returns the bytes that a stage has in addition to its rows.
  __host__ __device__ static int more_bytes(int) { return 0; }
  // In a chunk a thread has four groups of 8 neighbouring columns, kColumnStep columns apart.
  static constexpr int kColumnStep = kTeam * 4 * kColumns;
  // Returns the first column of the thread's group d, counted from the first column of its group 0.
  __device__ static constexpr int column_of(int d) { return d * kColumnStep; }
  // Returns how many steps multiply() takes for warp `part` of the team in a chunk of `columns` columns. In this class
  // a step is one group of 8 columns.
  __device__ static int steps(int columns, int part) {
    return min(4, (columns - part * 4 * kColumns + kColumnStep - 1) / kColumnStep);
  }
  __device__ static void prefetch_scales(const Matmul<T>&, std::int64_t, std::int64_t) {}

  // Copies a stage of an item's weights. Only one warp calls this function. Among all experts' rows, the item's weight
  // rows are low … low + 7 and high … high + 7.
  __device__ static void copy(const Matmul<T>& m, std::int64_t low, std::int64_t high, int column, int columns,
                              int pitch, unsigned char* to, SharedBarrier& full) {
    copy_rows(m.w + low * m.k + column, m.w + high * m.k + column, row_bytes(m.k), row_bytes(columns), pitch, to, full);
  }

  // Adds this thread's products of a chunk to `sum`. The stage has `columns` columns, `pitch` is the number of bytes
  // between the starts of two rows, and `steps` is the result of steps().
  __device__ static void multiply(const unsigned char* slot, int pitch, int, int chunk, const uint4 (&x)[4], int steps,
                                  const Scales&, float (&sum)[4]) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int part = static_cast<int>(threadIdx.x) / kWarp % kTeam;
    const unsigned char* const from =
        slot + lane / 4 * pitch + chunk * kStreamedChunk<kTeam> * 2 + (part * 4 + lane % 4) * 16;
    const auto of = [&](int d, int half) {
      return *reinterpret_cast<const uint4*>(from + half * 8 * pitch + d * kTeam * 64);
    };
    const auto add = [&](const uint4& low, const uint4& high, const uint4& columns) {
      multiply_tile<T>(sum, {low.x, high.x, low.y, high.y}, columns.x, columns.y);
      multiply_tile<T>(sum, {low.z, high.z, low.w, high.w}, columns.z, columns.w);
    };
    if (steps == 4) {
      uint4 w[4][2];
#pragma unroll
      for (int d = 0; d < 4; ++d)
#pragma unroll
        for (int half = 0; half < 2; ++half) w[d][half] = of(d, half);
#pragma unroll
      for (int d = 0; d < 4; ++d) add(w[d][0], w[d][1], x[d]);
      return;
    }
#pragma unroll
    for (int d = 0; d < 3; ++d)
      if (d < steps) add(of(d, 0), of(d, 1), x[d]);
  }
};

// Reads mxfp4. A stage holds all columns of k, and the scale factors follow the rows. The 32 columns that a thread has
// in a chunk are one block.
template <class T>
struct PackedStream {
  using Scales = NoScales<T>;
  static constexpr int kTeam = kTeamOfBlock;
  static constexpr bool kHasFactors = false;
  static constexpr int kColumns = kPackedBlock;
  static constexpr int kMostColumns = 4096;  // maximum number k of columns of a row

  __host__ __device__ static int row_bytes(int columns) { return columns / 2; }
  __host__ __device__ static int more_bytes(int columns) { return kStreamedWeightRows * columns / kPackedBlock; }
  __device__ static constexpr int column_of(int d) { return d * 8; }
  __device__ static int steps(int columns, int part) { return part * 4 * kColumns < columns ? 4 : 0; }
  __device__ static void prefetch_scales(const Matmul<T>&, std::int64_t, std::int64_t) {}

  // Copies a stage. k is a multiple of 64, so the scale factors of eight rows are a multiple of 16 bytes.
  __device__ static void copy(const Matmul<T>& m, std::int64_t low, std::int64_t high, int, int columns, int pitch,
                              unsigned char* to, SharedBarrier& full) {
    const int bytes = row_bytes(columns);
    copy_rows(m.packed + low * bytes, m.packed + high * bytes, bytes, bytes, pitch, to, full);
    if (static_cast<int>(threadIdx.x) % kWarp != 0) return;
    const int blocks = columns / kPackedBlock;
    unsigned char* const to_scales = to + kStreamedWeightRows * pitch;
    bulk_copy(to_scales, m.scales + low * blocks, static_cast<std::uint32_t>(8 * blocks), full);
    bulk_copy(to_scales + 8 * blocks, m.scales + high * blocks, static_cast<std::uint32_t>(8 * blocks), full);
  }

  __device__ static void multiply(const unsigned char* slot, int pitch, int columns, int chunk, const uint4 (&x)[4],
                                  int steps, const Scales&, float (&sum)[4]) {
    if (steps == 0) return;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int part = static_cast<int>(threadIdx.x) / kWarp % kTeam;
    const int blocks = columns / kPackedBlock;
    const int row = lane / 4;
    const int block = min(chunk * (kStreamedChunk<kTeam> / kPackedBlock) + part * 4 + lane % 4, blocks - 1);
    const uint4 low = *reinterpret_cast<const uint4*>(slot + row * pitch + block * 16);
    const uint4 high = *reinterpret_cast<const uint4*>(slot + (row + 8) * pitch + block * 16);
    const unsigned char* const scales = slot + kStreamedWeightRows * pitch + row * blocks + block;
    const PackedFactor low_factor(scales[0]);
    const PackedFactor high_factor(scales[8 * blocks]);
    const std::uint32_t words[2][4] = {{low.x, low.y, low.z, low.w}, {high.x, high.y, high.z, high.w}};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      std::uint32_t pairs[4];
      std::uint32_t w[2][4];
      pair_up(x[i], pairs);
      unpack_word(words[0][i], low_factor, w[0]);
      unpack_word(words[1][i], high_factor, w[1]);
      multiply_tile<T>(sum, {w[0][0], w[1][0], w[0][1], w[1][1]}, pairs[0], pairs[1]);
      multiply_tile<T>(sum, {w[0][2], w[1][2], w[0][3], w[1][3]}, pairs[2], pairs[3]);
    }
  }
};

}  // namespace tessera::cuda::moe
