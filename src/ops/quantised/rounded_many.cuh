// Computes quantised_linear, alone or together with the gate after it (silu_mul or gelu_mul), on Hopper. The kernel is
// for many rows of x, which are rounded to E4M3 (rounded_rows.cuh), and for w in E4M3. The throughput of the tensor
// cores for 8-bit products limits the speed. An H100's data sheet gives 1979 TFLOP/s.
//
// x is wgmma's A operand, so a thread has the sums of two rows of x. A stage has 128 columns. For a stage's sums a
// thread needs only two scales of x and, if blocks of 128 rows of w share a scale, one scale of w. The tensor cores
// keep only about 14 bits when they add, so a stage's sums are multiplied by the scales and added in float32. A
// warpgroup keeps two stages' sums in registers, and adds one stage's sums while the tensor cores compute the next
// stage's sums.
//
// Blocks are persistent, and process tiles of 128 by 128. The two blocks of a cluster have neighbouring rows of w and
// the same rows of x, and share the copies of x. (Clusters of four blocks that share both matrices are slower, because
// a GPU runs fewer blocks at once in such clusters.) One thread starts the copies. The warpgroup of this thread gives
// registers to the other two warpgroups, which multiply 64 rows of x each. These two synchronise only through the ring
// of stages in shared memory, so that one stores results while the other multiplies.
#pragma once

#include "tessera/ops/cuda/async_copy.cuh"
#include "tessera/ops/cuda/box_copy.cuh"
#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/cuda/wgmma.cuh"
#include "tessera/ops/linear/linear_gate.cuh"
#include "tessera/ops/quantised/quantised_values.cuh"

namespace tessera::cuda::quantised {

inline constexpr int kManyRows = 128;     // rows of x in a tile
inline constexpr int kManyWeights = 128;  // rows of w in a tile
inline constexpr int kManyCluster = 2;
inline constexpr int kManyStages = 5;
inline constexpr int kManyWarps = 2 * kWarpgroup / kWarp;  // number of warps that multiply
inline constexpr int kManyThreads = 3 * kWarpgroup;
inline constexpr int kManyMatrix = kManyRows * kRoundedGroup;  // bytes of a stage's part of either matrix
inline constexpr int kManyStage = 2 * kManyMatrix;
inline constexpr int kManySums = kManyWeights / 2;        // number of sums of a thread
inline constexpr int kResultRow = kManyWeights * 2 + 16;  // bytes of a row, padded so that eight rows use all banks
inline constexpr int kResultBytes = 16 * kResultRow;      // bytes of a warp's results
inline constexpr int kManyScales = kManyRows * 4;         // bytes of a stage's scales of x
inline constexpr int kManyBytes =
    1024 + kManyStages * (kManyStage + kManyScales) + kManyWarps * kResultBytes;  // bytes of shared memory

template <class T>
struct ManyRounded {
  CUtensorMap x;          // [m, k] bytes, in 16-bit elements; boxes of half a tile's rows
  CUtensorMap values;     // [n or 2n, k] bytes, in 16-bit elements; gated: 8 gate rows and 8 up rows alternate
  const float* x_scales;  // [⌈k / 128⌉, scale_stride]
  const float* w_scales;  // [⌈rows of w / group_rows⌉, w_groups]
  const T* bias;          // [n or 2n]; null: no bias
  const T* residual;      // [m, n]; null: no residual
  T* y;                   // [m, n]
  int scale_stride;
  int w_groups;  // number of groups of columns of w; 1: a row of w has one scale
  int group_rows;
  int m;
  int n;  // number of columns of y
  int k;
  int row_tiles;
  int items;  // number of work items: (pairs of tiles of w) · (tiles of rows of x)
  Gate gate;
};

template <class T>
class ManyTile {
 public:
  __device__ ManyTile(const ManyRounded<T>& p, int item)
      : p_(p),
        row_(item % p.row_tiles * kManyRows),
        weight_((item / p.row_tiles * kManyCluster + static_cast<int>(block_in_cluster())) * kManyWeights) {}
  __device__ int row() const { return row_; }
  __device__ int weight() const { return weight_; }

  // Returns the scales of the tile's rows of w, one for each stage. Without a gate, all rows have the same scales. With
  // a gate, eight gate rows and eight up rows alternate in the tile. In this case `odd` is 0 for the scales of the gate
  // rows, and 1 for those of the up rows.
  __device__ const float* scales_of(int odd) const {
    const bool is_gated = p_.gate != Gate::kNone;
    const int row = is_gated ? weight_ / 2 + odd * p_.n : weight_;
    const int rows = is_gated ? 2 * p_.n : p_.n;
    return p_.w_scales + static_cast<std::int64_t>(min(row, rows - 1) / p_.group_rows) * p_.w_groups;
  }

  // Multiplies each sum by the scale of its row of w. The product is rounded before a bias is added, as in the other
  // kernels.
  __device__ void scale_rows(float (&sum)[kManySums]) const {
    const bool is_gated = p_.gate != Gate::kNone;
#pragma unroll
    for (int j = 0; j < kManySums / 4; ++j)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int at = static_cast<int>(threadIdx.x) % 4 * 2 + i;
        const int w_row = is_gated ? weight_ / 2 + j / 2 * 8 + at + j % 2 * p_.n : weight_ + j * 8 + at;
        const float of_w = p_.w_scales[min(w_row, (is_gated ? 2 * p_.n : p_.n) - 1) / p_.group_rows];
        sum[4 * j + i] = __fmul_rn(sum[4 * j + i], of_w);
        sum[4 * j + 2 + i] = __fmul_rn(sum[4 * j + 2 + i], of_w);
      }
  }

  // Adds the residual to two sums of neighbouring columns, and converts them to elements of y.
  __device__ std::uint32_t finish(float first, float second, int row, int column) const {
    if (p_.residual != nullptr && row < p_.m && column < p_.n) {
      const Pack<T, 2> old = load_pack<T, 2>(p_.residual + static_cast<std::int64_t>(row) * p_.n + column);
      first += to_float(old.at[0]);
      second += to_float(old.at[1]);
    }
    return pack_two<T>(first, second);
  }
  __device__ float2 bias_of(int row) const {
    if (p_.bias == nullptr || row >= (p_.gate == Gate::kNone ? p_.n : 2 * p_.n)) return make_float2(0, 0);
    const Pack<T, 2> two = load_pack<T, 2>(p_.bias + row);
    return make_float2(to_float(two.at[0]), to_float(two.at[1]));
  }

  // Stores a warp's sums to y. The sums first go to `results`, the warp's part of shared memory. `first_row` is the
  // warp's first row of x.
  __device__ void store(const float (&sum)[kManySums], unsigned char* results, int first_row) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const bool is_gated = p_.gate != Gate::kNone;
    const int columns = is_gated ? kManyWeights / 2 : kManyWeights;
    const int column = is_gated ? weight_ / 2 : weight_;
    const int row = first_row + lane / 4;
    const std::uint32_t to = shared_address(results) + static_cast<std::uint32_t>(lane % 16 * kResultRow);
    __syncwarp();
    if (is_gated) {
#pragma unroll
      for (int j = 0; j < kManySums / 4; j += 4) {
        std::uint32_t four[4];
#pragma unroll
        for (int g = 0; g < 2; ++g) {
          const float* const gates = sum + 4 * (j + 2 * g);
          const int at = column + (j / 2 + g) * 8 + lane % 4 * 2;
          const float2 gate_bias = bias_of(at);
          const float2 up_bias = bias_of(p_.n + at);
#pragma unroll
          for (int half = 0; half < 2; ++half)
            four[2 * g + half] =
                finish(gated<T>(p_.gate, gates[2 * half] + gate_bias.x, gates[4 + 2 * half] + up_bias.x),
                       gated<T>(p_.gate, gates[2 * half + 1] + gate_bias.y, gates[4 + 2 * half + 1] + up_bias.y),
                       row + 8 * half, at);
        }
        store_matrices<false>(to + static_cast<std::uint32_t>((j / 2 + lane / 16) * 16), four);
      }
    } else {
#pragma unroll
      for (int j = 0; j < kManySums / 4; j += 2) {
        std::uint32_t four[4];
#pragma unroll
        for (int g = 0; g < 2; ++g) {
          const int at = column + (j + g) * 8 + lane % 4 * 2;
          const float2 bias = bias_of(at);
#pragma unroll
          for (int half = 0; half < 2; ++half)
            four[2 * g + half] = finish(sum[4 * (j + g) + 2 * half] + bias.x, sum[4 * (j + g) + 2 * half + 1] + bias.y,
                                        row + 8 * half, at);
        }
        store_matrices<false>(to + static_cast<std::uint32_t>((j + lane / 16) * 16), four);
      }
    }
    __syncwarp();
    const int packs = columns / 8;
    for (int i = lane; i < 16 * packs; i += kWarp) {
      const int r = i / packs;
      const int c = i % packs * 8;
      if (first_row + r < p_.m && column + c < p_.n)
        *reinterpret_cast<uint4*>(p_.y + static_cast<std::int64_t>(first_row + r) * p_.n + column + c) =
            *reinterpret_cast<const uint4*>(results + r * kResultRow + c * 2);
    }
  }

 private:
  const ManyRounded<T>& p_;
  int row_;
  int weight_;
};

// Computes y tile by tile. gridDim.x is a multiple of kManyCluster. Preconditions: k and the number of rows of w are
// multiples of 16. If a block of rows and columns of w shares a scale, it has 128 columns and a multiple of
// kManyWeights rows. If there is also a gate, a multiple of kManyWeights / 2 rows is enough, but n must be a multiple
// of kManyWeights / 2 too.
template <class T>
__global__ void __launch_bounds__(kManyThreads, 1) rounded_many(const __grid_constant__ ManyRounded<T> p) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char unaligned[];
  __shared__ SharedBarrier full[kManyStages], empty[kManyStages];
  unsigned char* const ring = unaligned + (1024 - shared_address(unaligned) % 1024) % 1024;
  unsigned char* const scales = ring + kManyStages * kManyStage;
  unsigned char* const results = scales + kManyStages * kManyScales;
  const bool by_stage = p.w_groups > 1;
  const int stages = (p.k + kRoundedGroup - 1) / kRoundedGroup;
  const int clusters = static_cast<int>(gridDim.x) / kManyCluster;
  if (threadIdx.x == 0) {
    for (int s = 0; s < kManyStages; ++s) {
      full[s].init(1);
      empty[s].init(kManyCluster * kManyWarps);
    }
    SharedBarrier::make_visible();
    prefetch_map(p.x);
    prefetch_map(p.values);
  }
  let_next_begin();
  sync_cluster();
  wait_for_previous();

  int slot = 0;
  std::uint32_t turn = 0;
  const auto advance = [&] {
    if (++slot == kManyStages) slot = 0, ++turn;
  };
  const auto warpgroup = static_cast<int>(threadIdx.x) / kWarpgroup;
  if (warpgroup == 2) {
    keep_registers<40, false>();
    if (threadIdx.x % kWarpgroup == 0) {
      let_copies_see_stores();
      const int share = static_cast<int>(block_in_cluster()) * (kManyRows / kManyCluster);
      for (int item = static_cast<int>(blockIdx.x) / kManyCluster; item < p.items; item += clusters) {
        const ManyTile<T> tile(p, item);
        for (int s = 0; s < stages; ++s, advance()) {
          if (turn > 0) empty[slot].wait((turn - 1) & 1);
          full[slot].arrive_and_expect(kManyStage + kManyScales);
          const std::uint32_t weights = shared_address(ring) + static_cast<std::uint32_t>(slot) * kManyStage;
          const int column = s * (kRoundedGroup / 2);
          if (p.gate == Gate::kNone) {
            copy_box(weights, p.values, full[slot], column, tile.weight());
          } else {
            copy_box(weights, p.values, full[slot], column, 0, 0, tile.weight() / 16, 0);
          }
          copy_box_to_all(weights + kManyMatrix + static_cast<std::uint32_t>(share * kRoundedGroup), p.x, full[slot], 3,
                          column, tile.row() + share);
          bulk_copy(scales + slot * kManyScales,
                    p.x_scales + static_cast<std::int64_t>(s) * p.scale_stride + tile.row(), kManyScales, full[slot]);
        }
      }
    }
    __syncwarp();
  } else {
    keep_registers<232, true>();
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int in_tile = warp * 16 + lane / 4;  // the thread's first row of x in the tile
    for (int item = static_cast<int>(blockIdx.x) / kManyCluster; item < p.items; item += clusters) {
      const ManyTile<T> tile(p, item);
      const float* const of_w[2] = {tile.scales_of(0), tile.scales_of(1)};
      float sum[kManySums] = {};
      float parts[2][kManySums];
      const auto start = [&](float(&part)[kManySums]) {
        full[slot].wait(turn & 1);
        const std::uint32_t weights = shared_address(ring) + static_cast<std::uint32_t>(slot) * kManyStage;
        const std::uint64_t a =
            matrix_at(weights + kManyMatrix + static_cast<std::uint32_t>(warpgroup * 64 * kRoundedGroup));
        const std::uint64_t b = matrix_at(weights);
        begin_products();
#pragma unroll
        for (int d = 0; d < kRoundedGroup / 32; ++d)
          multiply_e4m3<kManyWeights>(part, a + d * kMatrixStep, b + d * kMatrixStep, d);
        end_products();
      };
      const auto release = [&](int of) {
        if (lane < kManyCluster) arrive_at_block(empty[of], static_cast<unsigned>(lane));
      };
      const auto add = [&](const float(&part)[kManySums], int of, const float2& w_scale) {
        const auto* const of_x = reinterpret_cast<const float*>(scales + of * kManyScales);
        const float first = of_x[in_tile];
        const float second = of_x[in_tile + 8];
        __syncwarp();
        release(of);
        const float by[2][2] = {{first * w_scale.x, second * w_scale.x}, {first * w_scale.y, second * w_scale.y}};
#pragma unroll
        for (int j = 0; j < kManySums / 4; ++j)
#pragma unroll
          for (int i = 0; i < 4; ++i) sum[4 * j + i] += part[4 * j + i] * by[j % 2][i / 2];
      };
      const auto scales_at = [&](int s) {
        return by_stage && s < stages ? make_float2(of_w[0][s], of_w[1][s]) : make_float2(1, 1);
      };
      // If a loop reads sums, the compiler lets no product continue into the next iteration (ptxas C7514). An iteration
      // therefore processes two stages. While the sums of the first stage are added, the tensor cores compute the
      // second stage.
      float2 w_scales[2] = {scales_at(0), scales_at(1)};
      for (int s = 0; s < stages; s += 2) {
        const float2 now[2] = {w_scales[0], w_scales[1]};
        const int first = slot;
        start(parts[0]);
        advance();
        if (s + 1 == stages) {
          wait_for_products<0>();
          hold(parts[0]);
          add(parts[0], first, now[0]);
          break;
        }
        const int second = slot;
        start(parts[1]);
        advance();
        w_scales[0] = scales_at(s + 2);
        w_scales[1] = scales_at(s + 3);
        wait_for_products<1>();
        hold(parts[0]);
        add(parts[0], first, now[0]);
        wait_for_products<0>();
        hold(parts[1]);
        add(parts[1], second, now[1]);
      }
      if (!by_stage) tile.scale_rows(sum);
      tile.store(sum, results + warp * kResultBytes, tile.row() + warp * 16);
    }
  }
  // A block must not end before this barrier, because the other block of the cluster may still write to its shared
  // memory and signal its mbarriers.
  sync_cluster();
#endif
}

}  // namespace tessera::cuda::quantised
