// Parts shared by the CUDA kernels of moe_experts: the description of a matmul over rows that belong to different
// experts, and the conversion of its sums to results.
#pragma once

#include <cstdint>

#include "tessera/ops/cuda/cuda_activation.cuh"
#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/cuda/cuda_math.cuh"
#include "tessera/ops/moe/moe_experts.h"

namespace tessera::cuda::moe {

inline constexpr int kThreads = 256;
inline constexpr int kWarps = kThreads / kWarp;

// The arguments of one of the two matmuls. For each token and each of its experts e, a matmul computes a row
// y[row, 0 … n). a is the activation:
//   gate and up   y = a(w[e, 0 … n) · x, w[e, n … 2n) · x), where x is the token's row
//   down          y = w[e, 0 … n) · x, where x is the row that gate and up wrote
template <class T>
struct Matmul {
  const T* x;                  // rows of k values
  const T* w;                  // [experts, w_rows, k]; null if the weights are packed or quantised
  const T* bias;               // [experts, w_rows]; null without a bias
  const std::uint8_t* packed;  // mxfp4 values [experts, w_rows, k / 2]; null if the weights are not packed
  const std::uint8_t* scales;  // [experts, w_rows, k / 32]
  QuantisedMatrix matrix;      // [experts · w_rows, k], if the weights are quantised
  T* y;                        // rows of n values
  int n;
  int k;
  int w_rows;  // weight rows of one expert: n for down, 2n for gate and up
  int experts;
  int top_k;
  GatedActivation activation;
  float limit;
};

// The two matmuls. matmuls_of() describes them for the tokens from `first_token` on. The first matmul writes
// `activated` (rows of `intermediate` values). The second reads it and writes `y` (rows of `hidden` values).
template <class T>
struct Matmuls {
  Matmul<T> gate_up;
  Matmul<T> down;
};
template <class T>
Matmuls<T> matmuls_of(const ExpertsProblem& p, std::int64_t first_token, T* activated, T* y) {
  const auto n = static_cast<int>(p.intermediate);
  const auto h = static_cast<int>(p.hidden);
  const bool is_plain = !p.mxfp4 && !p.quantised;
  Matmul<T> gate_up{.x = reinterpret_cast<const T*>(p.x) + first_token * p.hidden,
                    .w = is_plain ? reinterpret_cast<const T*>(p.gate_up) : nullptr,
                    .bias = reinterpret_cast<const T*>(p.gate_up_bias),
                    .packed = p.mxfp4 ? reinterpret_cast<const std::uint8_t*>(p.gate_up) : nullptr,
                    .scales = p.gate_up_scale,
                    .matrix = p.gate_up_matrix,
                    .y = activated,
                    .n = n,
                    .k = h,
                    .w_rows = 2 * n,
                    .experts = static_cast<int>(p.experts),
                    .top_k = static_cast<int>(p.top_k),
                    .activation = p.activation,
                    .limit = p.limit};
  Matmul<T> down = gate_up;
  down.x = activated;
  down.w = is_plain ? reinterpret_cast<const T*>(p.down) : nullptr;
  down.packed = p.mxfp4 ? reinterpret_cast<const std::uint8_t*>(p.down) : nullptr;
  down.scales = p.down_scale;
  down.matrix = p.down_matrix;
  down.bias = reinterpret_cast<const T*>(p.down_bias);
  down.y = y;
  down.n = down.w_rows = h;
  down.k = n;
  return {gate_up, down};
}

// Applies the activation to the sums of gate and up, which include the biases. The function rounds to T wherever the
// formula in moe_experts.h rounds, but leaves the rounding of the result to the caller.
template <class T>
__device__ inline float activate(float gate, float up, GatedActivation activation, float limit) {
  gate = rounded<T>(gate);
  up = rounded<T>(up);
  switch (activation) {
    case GatedActivation::kSwiglu: return rounded<T>(Silu{}(gate)) * up;
    case GatedActivation::kGeglu: return rounded<T>(GeluTanh{}(gate)) * up;
    default: break;
  }
  gate = gate > limit ? limit : gate;
  up = up > limit ? limit : up < -limit ? -limit : up;
  return times_sigmoid(gate, kSwigluAlpha * gate) * (up + 1.0f);
}

// The order in which the columns of x are stored. A kernel that converts weights gets the values of two columns at
// once, as a pair, and these columns are not neighbours. For such a kernel, x is stored in the order of the pairs.
// kGiven means in ascending order.
//   kPaired       within 32 columns, column 4 i + j goes to place 8 j + i (moe_mxfp4.cuh)
//   kAlternating  within 16 columns, the columns with even numbers come first (moe_quantised_pieces.cuh)
enum class ColumnOrder { kGiven, kPaired, kAlternating };

// Rows of one expert that a block computes together. They are the rows [first, first + rows) of all rows sorted by
// expert.
struct Tile {
  int expert;
  int first;
  int rows;
  int unused;  // pads the struct to 16 bytes
};

// The list of the pairs (token, k), sorted by expert. A pair stands for the k-th of the experts that a token chose.
// order_rows() writes the list on the device (moe_order.cuh).
struct Order {
  int* num_tiles;  // [1]
  Tile* tiles;     // [num_tiles]
  int* place;      // [pairs]: the place of (token, k) among the sorted rows, or -1
  int* row;        // [pairs]: the token of each sorted row
};

// Computes two exclusive prefix sums over the block's threads. `mine` holds this thread's number for each of the two
// sums. `scratch` is shared memory with one element per warp.
__device__ inline int2 sum_before(int2 mine, int2* scratch) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  int2 sum = mine;
  for (int step = 1; step < kWarp; step *= 2) {
    const int x = __shfl_up_sync(0xffffffffu, sum.x, step);
    const int y = __shfl_up_sync(0xffffffffu, sum.y, step);
    if (lane >= step) sum.x += x, sum.y += y;
  }
  if (lane == kWarp - 1) scratch[warp] = sum;
  __syncthreads();
  int2 before = make_int2(sum.x - mine.x, sum.y - mine.y);
  for (int w = 0; w < warp; ++w) before.x += scratch[w].x, before.y += scratch[w].y;
  return before;
}

}  // namespace tessera::cuda::moe
