// Computes moe_experts for the few tokens of a decode step. Each chosen expert's weights are read once.
//
// The time is bounded by the bytes of the weights: 3 · H · I values for each chosen expert, for any number of its
// tokens (H: hidden size, I: intermediate size). For example, 8 experts of 3 x 2048 x 768 weights in bfloat16 are 75
// MB, which take 16 µs at 4.8 TB/s. A block takes 16 rows of an expert's matrix, and each of its 8 warps takes an
// eighth of the columns of these rows. The warps load the weights straight from global memory into the operands of
// tensor-core instructions. The instruction's 16 rows of x are the expert's tokens, so one token costs as much as
// sixteen. No list of tiles is made beforehand. Instead there is a block for each pair (token, k) and each group of 16
// weight rows. A block ends at once if an earlier pair has the same expert, or if its pair has no expert. A block that
// ends at once costs only its scheduling, but the blocks of all pairs except one may be of this kind. Therefore this
// kernel supports at most kMostPairs pairs.
//
// Weights of 4 bits need 17 bytes per 32 columns, so 4 experts of 3 x 2880 x 2880 weights are 53 MB, or 11 µs.
// Unpacking takes about two instructions per value, in addition to the loads.
#pragma once

#include "tessera/ops/cuda/tensor_core.cuh"
#include "tessera/ops/moe/moe_mxfp4.cuh"

namespace tessera::cuda::moe {

inline constexpr int kMostPairs = 128;
inline constexpr int kFewRows = 16;        // rows of x in one tensor-core instruction
inline constexpr int kFewWeightRows = 16;  // weight rows of a block
inline constexpr int kFewStep = 32;        // columns that a warp takes at a time, 16 bytes for each thread of a quad
inline constexpr int kFewBlocks = 4;       // MXFP4 blocks that a warp takes at a time, one for each thread of a quad

// Writes to `list`, in ascending order, all pairs with the same expert as `pair`, and returns the number of these
// pairs. Returns 0 if an earlier pair has the same expert, or if `pair` has no expert. All threads of the block call
// this function.
__device__ inline int pairs_of_expert(const std::int32_t* ids, int pairs, int pair, int experts, int* list,
                                      int* count) {
  const int expert = ids[pair];
  if (threadIdx.x < kWarp) {
    const int lane = static_cast<int>(threadIdx.x);
    int found = 0;
    bool is_first = expert >= 0 && expert < experts;
    for (int base = 0; base < pairs; base += kWarp) {
      const int i = base + lane;
      const bool same = i < pairs && ids[i] == expert;
      const unsigned all = __ballot_sync(0xffffffffu, same);
      if (same) list[found + __popc(all & ((1u << lane) - 1))] = i;
      found += __popc(all);
    }
    __syncwarp();
    is_first = is_first && list[0] == pair;
    if (lane == 0) *count = is_first ? found : 0;
  }
  __syncthreads();
  return *count;
}

// Multiplies a thread's part of two weight rows of an expert by two rows of x. Threads of a quad take neighbouring
// 16-byte chunks of a row. The operands of a tensor-core instruction may hold columns in any order, if both matrices
// use the same order.
template <class T>
class PlainRows {
 public:
  static constexpr int kBlocks = 0;           // minimum number of blocks per multiprocessor; 0: the compiler chooses
  static constexpr bool kScalesSums = false;  // whether sums are multiplied with sum_factor()

  __device__ PlainRows(const Matmul<T>& p, std::int64_t low, std::int64_t high)
      : k_(p.k), w_{p.w + low * p.k, p.w + high * p.k} {}

  // Computes sum[half] += of_row · w[half], over this warp's part of k. of_row points to two rows of x. If `has_high`
  // is false, the second row counts as zeros.
  __device__ void add(const T* const (&of_row)[2], bool has_high, float (&sum)[2][4]) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
#pragma unroll 4
    for (int step = warp * kFewStep; step < k_; step += kWarps * kFewStep) {
      const int c = step + lane % 4 * 8;
      const auto load = [&](const T* of, bool wanted) {
        return wanted && c < k_ ? *reinterpret_cast<const uint4*>(of + c) : make_uint4(0, 0, 0, 0);
      };
      const uint4 low = load(of_row[0], true);
      const uint4 high = load(of_row[1], has_high);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint4 weights = load(w_[half], true);
        multiply_tile<T>(sum[half], {low.x, high.x, low.y, high.y}, weights.x, weights.y);
        multiply_tile<T>(sum[half], {low.z, high.z, low.w, high.w}, weights.z, weights.w);
      }
    }
  }

 private:
  int k_;
  const T* w_[2];
};

// Does what PlainRows does, for mxfp4. The 16 bytes that a thread takes of a row are a block of 32 columns. The next
// blocks are loaded while the current one is multiplied.
template <class T>
class PackedRows {
 public:
  static constexpr int kBlocks = 3;  // with 0, the compiler would use more registers for unpacked words than needed
  static constexpr bool kScalesSums = false;

  __device__ PackedRows(const Matmul<T>& p, std::int64_t low, std::int64_t high)
      : blocks_(p.k / kPackedBlock),
        packed_{p.packed + low * p.k / 2, p.packed + high * p.k / 2},
        scales_{p.scales + low * blocks_, p.scales + high * blocks_} {}

  __device__ void add(const T* const (&of_row)[2], bool has_high, float (&sum)[2][4]) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    Blocks next = fetch(warp * kFewBlocks + lane % 4);
    for (int first = warp * kFewBlocks; first < blocks_; first += kWarps * kFewBlocks) {
      const int block = first + lane % 4;
      const Blocks now = next;
      next = fetch(block + kWarps * kFewBlocks);
#pragma unroll
      for (int i = 0; i < kPackedBlock / 8; ++i) {
        const auto load = [&](const T* of, bool wanted) {
          return wanted && block < blocks_ ? *reinterpret_cast<const uint4*>(of + block * kPackedBlock + i * 8)
                                           : make_uint4(0, 0, 0, 0);
        };
        std::uint32_t low[4];
        std::uint32_t high[4];
        pair_up(load(of_row[0], true), low);
        pair_up(load(of_row[1], has_high), high);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          std::uint32_t w[4];
          unpack_word(now.words[half][i], PackedFactor(now.scales[half]), w);
          multiply_tile<T>(sum[half], {low[0], high[0], low[1], high[1]}, w[0], w[1]);
          multiply_tile<T>(sum[half], {low[2], high[2], low[3], high[3]}, w[2], w[3]);
        }
      }
    }
  }

 private:
  struct Blocks {
    std::uint32_t words[2][4];
    unsigned scales[2];
  };

  __device__ Blocks fetch(int block) const {
    Blocks to;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint4 words = make_uint4(0, 0, 0, 0);
      to.scales[half] = 0;
      if (block < blocks_) {
        words = *reinterpret_cast<const uint4*>(packed_[half] + static_cast<std::int64_t>(block) * (kPackedBlock / 2));
        to.scales[half] = scales_[half][block];
      }
      to.words[half][0] = words.x, to.words[half][1] = words.y, to.words[half][2] = words.z,
      to.words[half][3] = words.w;
    }
    return to;
  }

  int blocks_;
  const std::uint8_t* packed_[2];
  const std::uint8_t* scales_[2];
};

// Computes the matmul for all pairs. gridDim.x counts tiles of kFewWeightRows weight rows, and gridDim.y counts pairs.
// With kGateUp a tile has 8 rows of gate and 8 rows of up. Without it, x is the result of gate and up, with one row for
// each pair. Preconditions: k is a multiple of 8 (of 32 in PackedRows), and pairs <= kMostPairs.
template <class T, bool kGateUp, template <class> class Rows>
__global__ void __launch_bounds__(kThreads, Rows<T>::kBlocks)
    few_rows(const Matmul<T> p, const std::int32_t* ids, int pairs) {
  __shared__ int list[kMostPairs];
  __shared__ int count;
  __shared__ __align__(16) float sums[kWarps][kFewRows][kFewWeightRows + 2];
  constexpr int kColumns = kGateUp ? kFewWeightRows / 2 : kFewWeightRows;  // columns of y that a block writes
  let_next_begin();
  wait_for_previous();
  const int pair = static_cast<int>(blockIdx.y);
  const int found = pairs_of_expert(ids, pairs, pair, p.experts, list, &count);
  if (found == 0) return;

  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int row = lane / 4;
  const int first = static_cast<int>(blockIdx.x) * kColumns;
  const std::int64_t expert = ids[pair];
  const T* const bias = p.bias == nullptr ? nullptr : p.bias + expert * p.w_rows;
  // In place of rows past the last one, the last row is read again. Its repeated results are not stored.
  const auto w_row = [&](int half) {
    const int column = min(first + (kGateUp ? row : half * 8 + row), p.n - 1);
    return expert * p.w_rows + column + (kGateUp ? half * p.n : 0);
  };
  const Rows<T> weights(p, w_row(0), w_row(1));

  for (int begin = 0; begin < found; begin += kFewRows) {
    const int rows = min(kFewRows, found - begin);
    const T* of_row[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at = list[begin + min(half * 8 + row, rows - 1)];
      of_row[half] = p.x + static_cast<std::int64_t>(kGateUp ? at / p.top_k : at) * p.k;
    }
    const bool has_high = rows > 8;
    float sum[2][4] = {};
    weights.add(of_row, has_high, sum);
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int high = 0; high < 2; ++high)
        *reinterpret_cast<float2*>(&sums[warp][high * 8 + row][half * 8 + lane % 4 * 2]) =
            make_float2(sum[half][2 * high], sum[half][2 * high + 1]);
    __syncthreads();

    // `column` is the number of a weight row within the tile. `weight_row` is the number of this row within the expert.
    const auto total = [&](int r, int column, [[maybe_unused]] int weight_row) {
      float t = 0;
#pragma unroll
      for (int part = 0; part < kWarps; ++part) t += sums[part][r][column];
      if constexpr (Rows<T>::kScalesSums) t *= Rows<T>::sum_factor(p, expert * p.w_rows + weight_row);
      return t;
    };
    for (int i = static_cast<int>(threadIdx.x); i < rows * kColumns; i += kThreads) {
      const int r = i / kColumns;
      const int column = first + i % kColumns;
      if (column >= p.n) continue;
      float y = total(r, i % kColumns, column);
      if (bias != nullptr) y += to_float(bias[column]);
      if constexpr (kGateUp) {
        float up = total(r, kColumns + i % kColumns, p.n + column);
        if (bias != nullptr) up += to_float(bias[p.n + column]);
        y = activate<T>(y, up, p.activation, p.limit);
      }
      p.y[static_cast<std::int64_t>(list[begin + r]) * p.n + column] = from_float<T>(y);
    }
    __syncthreads();  // all reads end before the next rows' sums are written
  }
}

}  // namespace tessera::cuda::moe
