// Computes adapter_add for 16-bit types on tensor cores. A warp takes 64 columns of y and 16 rows of a chunk at a time.
// split_two() splits each value of t into two numbers, and the warp multiplies both by b.
#pragma once

#include <cstdint>

#include "tessera/ops/adapters/adapter_tiles.cuh"

namespace tessera::cuda::adapters {

inline constexpr int kAddWarps = 4;     // warps of a block of adapter_add
inline constexpr int kAddColumns = 64;  // columns of y that a warp of adapter_add computes
inline constexpr int kDepth = 16;       // values of t in a tensor-core product

// Eight columns of two neighbouring rows of b. Each word has the two values of one column.
struct ColumnPairs {
  std::uint32_t of[8];

  __device__ ColumnPairs(const uint4& even, const uint4& odd) {
    const std::uint32_t low[4] = {even.x, even.y, even.z, even.w};
    const std::uint32_t high[4] = {odd.x, odd.y, odd.z, odd.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      of[2 * i] = __byte_perm(low[i], high[i], 0x5410);
      of[2 * i + 1] = __byte_perm(low[i], high[i], 0x7632);
    }
  }
};

// Computes y += scale · t · b for a chunk. gridDim.x counts blocks of kAddWarps · kAddColumns columns, and gridDim.y
// counts chunks. A warp computes its 64 columns by eight products of eight columns each. Column n of product j is the
// warp's column 8 · n + j, so a lane's results are in neighbouring columns.
template <class T>
__global__ void __launch_bounds__(kAddWarps* kWarp, 4) add_tiles(const AdapterAddArgs in) {
  let_next_begin();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int group = lane / 4;
  const int pair = lane % 4 * 2;
  const Chunk chunk(in.table, blockIdx.y);
  const std::int64_t column =
      (std::int64_t{blockIdx.x} * kAddWarps + threadIdx.x / kWarp) * kAddColumns;  // the warp's first column
  if (chunk.slot < 0 || column >= in.cols) {
    wait_for_previous();
    return;
  }
  const std::int32_t module = module_of(in.ranges, column);
  const std::int32_t rank = in.ranks[chunk.slot * in.modules + module];
  const float scale = in.scales[chunk.slot * in.modules + module];
  const T* const b = static_cast<const T*>(in.b) + std::int64_t{chunk.slot} * in.rank * in.cols + column + group * 8;
  const auto row_of_b = [&](int depth, int i) { return depth + pair + i % 2 + i / 2 * 8; };
  const auto load_b = [&](uint4(&rows)[4], int depth) {
#pragma unroll
    for (int i = 0; i < 4; ++i) rows[i] = load_or_zero(b + row_of_b(depth, i) * in.cols, row_of_b(depth, i) < in.rank);
  };
  uint4 first[4];
  load_b(first, 0);  // starts before the rank has been loaded
  bool is_row[2];
  std::int64_t rows_of_lane[2];
  const auto find_rows = [&](int at) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      is_row[h] = at + group + h * 8 < chunk.count;
      rows_of_lane[h] = is_row[h] ? in.table.order[chunk.begin + at + group + h * 8] : 0;
    }
  };
  find_rows(0);
  wait_for_previous();
  if (rank == 0) return;

  for (int at = 0; at < chunk.count; at += 16) {
    T* y[2];
    const float* t[2];
    uint4 old[2][2];
    if (at > 0) find_rows(at);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const std::int64_t row = rows_of_lane[h];
      y[h] = static_cast<T*>(in.y) + row * in.cols + column + pair * 8;
      t[h] = in.t + (row * in.modules + module) * in.rank + pair;
#pragma unroll
      for (int i = 0; i < 2; ++i) old[h][i] = load_or_zero(y[h] + i * 8, is_row[h]);
    }
    float sums[8][4] = {};
    for (int depth = 0; depth < rank; depth += kDepth) {
      uint4 rows[4];
      if (depth == 0) {
#pragma unroll
        for (int i = 0; i < 4; ++i) rows[i] = first[i];
      } else {
        load_b(rows, depth);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (row_of_b(depth, i) >= rank) rows[i] = uint4{0, 0, 0, 0};
      std::uint32_t high[4];
      std::uint32_t low[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int r = depth + i / 2 * 8;  // index in t of the lane's first value
        const bool within = is_row[i % 2] && r + pair < rank;
        const float v0 = within ? t[i % 2][r] : 0.0F;
        const float v1 = within && r + pair + 1 < rank ? t[i % 2][r + 1] : 0.0F;
        const SplitPair both = split_two<T>(v0, v1);
        high[i] = both.rounded;
        low[i] = both.rest;
      }
      const ColumnPairs b0(rows[0], rows[1]);
      const ColumnPairs b1(rows[2], rows[3]);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        multiply_tile<T>(sums[j], high, b0.of[j], b1.of[j]);
        multiply_tile<T>(sums[j], low, b0.of[j], b1.of[j]);
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (!is_row[h]) continue;
        std::uint32_t out[4] = {old[h][i].x, old[h][i].y, old[h][i].z, old[h][i].w};
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const float2 was = unpack_two<T>(out[j]);
          out[j] =
              pack_two<T>(fmaf(scale, sums[2 * j][h * 2 + i], was.x), fmaf(scale, sums[2 * j + 1][h * 2 + i], was.y));
        }
        *reinterpret_cast<uint4*>(y[h] + i * 8) = make_uint4(out[0], out[1], out[2], out[3]);
      }
  }
}

}  // namespace tessera::cuda::adapters
