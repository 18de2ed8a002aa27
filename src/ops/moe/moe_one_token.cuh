// Parts shared by the two kernels of moe_experts for one token with 4-bit weights (moe_one_token_gate_up.cuh and
// moe_one_token_down.cuh).
//
// The time is bounded by the bytes of the chosen experts. For example, 4 experts of 3 x 2880 x 2880 weights are 53 MB,
// which take 12 µs at 4.3 TB/s. Unpacking takes 13 instructions for eight values. This keeps all schedulers busy for
// 6 µs, while bytes arrive. There is one row for each chosen expert, so nothing is sorted.
//
// The scale factor of a block of 32 columns multiplies the block's sum, not each weight. In a step, each of the four
// threads of a quad has its own block, and one tensor-core instruction adds up products of all four blocks. The eight
// columns of the instruction's B operand keep the four sums separate. Column 2q holds the x of thread q's block, and
// zeros for the other blocks. Thread q receives the sums of columns 2q and 2q + 1. In the kernel of gate and up, the A
// operand has rows of gate and rows of up. Both are multiplied by column 2q. In the kernel of down, the A operand has
// rows of two experts. One expert uses column 2q and the other uses column 2q + 1, because each expert has its own x.
//
// Weights enter the product as unpack_raw() makes them, times 2^-126, and x enters times 2^60. Neither factor causes a
// rounding if |x| is below 2^67. A sum of products vanishes in float32 only if its value without these factors is below
// 2^-83.
//
// x is stored in the order in which threads multiply it (place_of()). The kernel of gate and up writes its results in
// this order for the kernel of down.
#pragma once

#include "tessera/ops/cuda/tensor_core.cuh"
#include "tessera/ops/moe/moe_mxfp4.cuh"

namespace tessera::cuda::moe {

inline constexpr int kTokenColumns = 8;              // columns of y whose weight rows a warp multiplies
inline constexpr int kTokenStep = 4 * kPackedBlock;  // columns of k in a step: one block for each thread of a quad
inline constexpr float kTokenScaleOfX = 0x1p60F;
inline constexpr float kTokenScaleOfSums = 0x1p66F;  // 2^126 / kTokenScaleOfX

// Returns the number of columns rounded up to whole steps.
constexpr std::int64_t token_columns(std::int64_t k) { return (k + kTokenStep - 1) / kTokenStep * kTokenStep; }

// Returns the place of the group of eight columns that begins with column 8 · `eight`. Each place holds one such group.
// A step first has the first group of each of its four blocks, then the second group of each, and so on.
__device__ inline int place_of(int eight) { return eight / 16 * 16 + eight % 4 * 4 + eight / 4 % 4; }

// Loads the thread's block of x in a step. `x` points to the start of the step.
__device__ inline void load_block(const uint4* x, uint4 (&columns)[4]) {
#pragma unroll
  for (int j = 0; j < 4; ++j) columns[j] = x[j * 4 + static_cast<int>(threadIdx.x) % 4];
}

// A thread's two blocks of 32 weights in a step. The thread has two weight rows, `low` and `high`, and a block of each.
struct TwoBlocks {
  uint4 low;
  uint4 high;
  unsigned low_scale;
  unsigned high_scale;
};

// Adds products of the thread's blocks to low_sum and high_sum. The instruction gives a thread the sums for an even and
// an odd column of the B operand. low_sum takes the low row's sum for the even column. high_sum takes the high row's
// sum for the odd column if kOdd is true, and for the even column otherwise. `x` is the thread's part of the B operand,
// as pairs of values. It is a block of x, or zeros.
template <class T, bool kOdd>
__device__ inline void multiply_blocks(const TwoBlocks& blocks, const uint4 (&x)[4], float& low_sum, float& high_sum) {
  const uint4& a = blocks.low;
  const uint4& b = blocks.high;
  const std::uint32_t words[2][4] = {{a.x, a.y, a.z, a.w}, {b.x, b.y, b.z, b.w}};
  float sum[2][4] = {};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    std::uint32_t w[2][4];
    unpack_raw(words[0][i], w[0]);
    unpack_raw(words[1][i], w[1]);
    multiply_tile<T>(sum[i / 2], {w[0][0], w[1][0], w[0][1], w[1][1]}, x[i].x, x[i].y);
    multiply_tile<T>(sum[i / 2], {w[0][2], w[1][2], w[0][3], w[1][3]}, x[i].z, x[i].w);
  }
  // Returns 2^(scale - 127), or infinity for 255.
  const auto factor = [](unsigned scale) { return __uint_as_float(max(scale << 23, 0x00400000u)); };
  constexpr int kHigh = kOdd ? 3 : 2;
  low_sum += factor(blocks.low_scale) * (sum[0][0] + sum[1][0]);
  high_sum += factor(blocks.high_scale) * (sum[0][kHigh] + sum[1][kHigh]);
}

// Adds up the parts of a sum that the threads of a quad hold.
__device__ inline float sum_of_quad(float sum) {
  sum += __shfl_xor_sync(0xffffffffu, sum, 1);
  return sum + __shfl_xor_sync(0xffffffffu, sum, 2);
}

// Returns the final value of a sum, whose parts have been added up. A scale of 255 means NaN, but multiply_blocks()
// makes the sum infinite instead, so an infinite sum becomes NaN here. Nothing else makes the sum infinite if |x| is
// below 2^67.
__device__ inline float whole_sum(float sum) { return isinf(sum) ? NAN : sum * kTokenScaleOfSums; }

__device__ inline bool is_expert(int id, int experts) { return id >= 0 && id < experts; }

}  // namespace tessera::cuda::moe
