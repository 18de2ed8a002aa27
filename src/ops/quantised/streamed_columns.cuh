// The columns of x in shared memory, in the order in which the kernel of quantised_staged.cuh multiplies them.
//
// A conversion of w decides which two columns form a pair in a register (quantised_values.cuh). arrange() pairs eight
// columns of x in the same way.
#pragma once

#include <cstdint>

#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/cuda/cuda_math.cuh"
#include "tessera/ops/quantised/quantised_values.cuh"
#include "tessera/ops/quantised/streamed_tile.cuh"

namespace tessera::cuda::quantised {

// Returns the number of 16-byte loads with which a thread reads its columns of x for a round. In a round, the four
// threads of a quad read kQuadBytes bytes of a row of w.
inline constexpr int column_loads(Values values) { return quad_columns(values) / 32; }

// Says whether e4m3 is converted to 2^-120 times its value. If so, columns of x are multiplied by 2^64, so that
// products stay in the middle of float32's range, and sums are multiplied by kShiftedSum = 2^(120 − 64). A value of x
// whose magnitude is at least 2^64 becomes infinite.
template <class T, Values kValues>
inline constexpr bool kShifts = kValues == Values::kE4M3&& kIsBf16<T>;
inline constexpr float kShiftedSum = 0x1p56F;

// Arranges eight columns of x in pairs.
template <class T, Values kValues>
__device__ inline uint4 arrange(const uint4& columns) {
  if constexpr (is_packed(kValues)) {
    std::uint32_t pairs[4];
    pair_up(columns, pairs);
    return make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
  } else if constexpr (kShifts<T, kValues>) {
    constexpr std::uint32_t kUp = 0x5F805F80u;  // 2^64 in both halves
    return make_uint4(times<T>(__byte_perm(columns.x, columns.y, 0x5410), kUp),
                      times<T>(__byte_perm(columns.x, columns.y, 0x7632), kUp),
                      times<T>(__byte_perm(columns.z, columns.w, 0x5410), kUp),
                      times<T>(__byte_perm(columns.z, columns.w, 0x7632), kUp));
  }
  return columns;
}

// Holds x in shared memory. To multiply, the four threads of a quad read four adjacent 16-byte chunks of a row of x.
// Rows are padded, so that the eight threads of two quads, which read together from two rows, use all banks.
struct StagedColumns {
  unsigned char* columns;  // [m][row_bytes()]
  float* sums;             // [columns / 128][8]: sums of 128 columns of a row of x; only for int4

  static constexpr int kSumColumns = 128;
  __host__ __device__ static int row_bytes(int columns) { return 2 * columns + 64; }
  __host__ __device__ static int bytes(int m, int columns) {
    return m * row_bytes(columns) + columns / kSumColumns * 8 * static_cast<int>(sizeof(float));
  }
  __device__ StagedColumns(unsigned char* memory, int m, int columns)
      : columns(memory), sums(reinterpret_cast<float*>(memory + m * row_bytes(columns))) {}

  // Copies x[m, width]. `threads` threads in whole warps share the work, and this thread has the number `thread`.
  template <class T, Values kValues>
  __device__ void fill(const T* x, int m, int width, int thread, int threads) const {
    constexpr int kLoads = column_loads(kValues);
    const int eights = width / 8;
    for (int r = 0; r < m; ++r)
      for (int c = thread; c < eights; c += threads) {
        const uint4 raw = reinterpret_cast<const uint4*>(x + static_cast<std::int64_t>(r) * width)[c];
        const int quad = c / (4 * kLoads);
        const int unit = c % (4 * kLoads) / kLoads;
        *reinterpret_cast<uint4*>(columns + r * row_bytes(width) + ((quad * kLoads + c % kLoads) * 4 + unit) * 16) =
            arrange<T, kValues>(raw);
        if constexpr (kValues == Values::kInt4) {
          float sum = 0;
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const PairOf<T> two = reinterpret_cast<const PairOf<T>*>(&raw)[i];
            sum += to_float(two.x) + to_float(two.y);
          }
          constexpr int kThreads = kSumColumns / 8;  // neighbouring lanes, because width is a multiple of 128
#pragma unroll
          for (int apart = 1; apart < kThreads; apart *= 2)
            sum += __shfl_xor_sync(0xFFFFu << (thread % kWarp / kThreads * kThreads), sum, apart);
          if (c % kThreads == 0) sums[c / kThreads * 8 + r] = sum;
        }
      }
  }
};

}  // namespace tessera::cuda::quantised
